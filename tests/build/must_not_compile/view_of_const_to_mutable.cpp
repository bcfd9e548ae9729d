// error: (could not convert|no viable conversion|conversion from)
#include <ogive/core/view.hpp>

void use(const ogive::view<const float, 2>& inputs) {
#if defined(OGIVE_BREAK)
  ogive::view<float, 2> outputs = inputs;
#else
  ogive::view<const float, 2> outputs = inputs;
#endif
  static_cast<void>(outputs);
}
