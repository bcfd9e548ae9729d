// The real-time promise of prepared operators: after `prepare` nothing allocates, locks, looks at a clock or makes a
// system call, from the first call on.
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s4.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/rng.hpp>

#include "tests/realtime/watch.hpp"

#if defined(HOOKED)

namespace {

using namespace ogive;
using number = std::complex<float>;

constexpr index_t B = 2, D = 19, N = 5, L = 300;

/// Stereo sound in blocks, planar or interleaved, through a filter that was prepared for L tokens.
template <class Op>
class player {
 public:
  explicit player(Op op) : filter_(prepare(op, {.sequences = B, .length = L, .form = form::convolution})) {
    testing::rng random(1);
    testing::fill_uniform(random, u_.all());
  }

  template <class Watch>
  void play(const Watch& watch) {
    for (const index_t count : {1, 3, 64, 200}) {
      watch("step, interleaved", [&] { filter_.step(tokens(u_, count), tokens(y_, count)); });
      watch("step, planar", [&] { filter_.step(planes(u_, count), planes(y_, count)); });
      watch("step, checked before", [&] { filter_.step(prechecked, tokens(u_, count), tokens(y_, count)); });
    }
    for (const form way : {form::recurrent, form::convolution, form::automatic}) {
      watch("forward", [&] { filter_.forward(u_, y_, {.form = way}); });
    }
    watch("forward, planar", [&] { filter_.forward(planes(u_, L), planes(y_, L)); });
    watch("reset", [&] { filter_.reset(); });
    watch("set_rate", [&] { filter_.set_rate(0.5); });
  }

 private:
  static view<float, 3> tokens(tensor<float, 3>& x, index_t count) { return x.all().slice(1, 0, count); }
  static view<float, 3> planes(tensor<float, 3>& x, index_t count) {
    return view<float, 3>(x.data(), {B, count, D}, {L * D, 1, L});
  }

  tensor<float, 3> u_{{B, L, D}}, y_{{B, L, D}};
  prepared<Op> filter_;
};

template <class Watch>
void every_call(const Watch& watch) {
  const tensor<number, 2> rates({D, N}, number(-1, 3)), ones({D, N}, number(1));
  const tensor<number, 3> P({D, 1, N}, number(0.5F, 0.25F));
  const tensor<float, 1> dt({D}, 0.01F), skip({D}, 0.5F);
  player<s4d<float>>({.A = rates, .B = ones, .C = ones, .dt = dt, .D = skip}).play(watch);
  const tensor<number, 1> shared({N}, number(-1, 3));
  const tensor<number, 2> in({N, D}, number(1));
  player<s5<float>>({.A = shared, .B = in, .C = ones, .dt = dt.all().slice(0, 0, N), .D = skip}).play(watch);
  player<s4<float>>({.Lambda = rates, .P = P, .B = ones, .C = ones, .dt = dt, .D = skip}).play(watch);
}

}  // namespace

TEST_CASE("after prepare no call allocates, locks or looks at a clock", "[realtime]") {
  every_call([](const char* name, const auto& call) {
    INFO(name);
    const int count = tests::count_calls(call);
    INFO("last: " << tests::last_call.load());
    CHECK(count == 0);
  });
}

TEST_CASE("after prepare no call calls the system", "[realtime]") {
  every_call([](const char* name, const auto& call) {
    INFO(name);
    CHECK(tests::stays_in_user_space(call));
  });
}

#endif

TEST_CASE("prepared steps are noexcept", "[realtime]") {
  using filter = ogive::prepared<ogive::s4d<float>>;
  using ogive::prechecked;
  STATIC_REQUIRE(noexcept(std::declval<filter&>().step(prechecked, {}, {})));
  STATIC_REQUIRE(noexcept(std::declval<filter&>().forward(prechecked, {}, {})));
  STATIC_REQUIRE(noexcept(std::declval<const filter&>().check({}, {})));
  STATIC_REQUIRE(noexcept(std::declval<filter&>().reset()));
}
