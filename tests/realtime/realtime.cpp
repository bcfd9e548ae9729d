// The real-time promise: after `reserve` no verb allocates, locks, looks at a clock or makes a system call, from the
// first call on; and after `check` the prechecked verbs are noexcept.
#include <ogive/ops/hgrn.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/ops/ssd.hpp>
#include <ogive/testing/rng.hpp>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "tests/realtime/watch.hpp"

#if defined(HOOKED)
#include <dlfcn.h>
#include <pthread.h>

namespace {

using ogive::tests::calls;
using ogive::tests::last_call;
using ogive::tests::seen;
using ogive::tests::stays_in_user_space;
using ogive::tests::watching;

template <class F>
F* real(const char* name) noexcept {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The C library's own entries stand behind these; what is defined here takes their place in the whole program.
extern "C" {
void* __libc_malloc(std::size_t);
void __libc_free(void*);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  seen("malloc");
  return __libc_malloc(bytes);
}
void free(void* memory) {
  seen("free");
  __libc_free(memory);
}
void* calloc(std::size_t count, std::size_t bytes) {
  seen("calloc");
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  seen("realloc");
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  seen("aligned_alloc");
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  seen("posix_memalign");
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  seen("pthread_mutex_lock");
  static auto* const lock = real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  return lock(mutex);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  seen("pthread_create");
  static auto* const create = real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return create(thread, attributes, start, argument);
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  seen("clock_gettime");
  static auto* const get = real<int(clockid_t, struct timespec*)>("clock_gettime");
  return get(clock, now);
}
}

#endif

namespace {

using namespace ogive;

template <class T, std::size_t Rank>
tensor<T, Rank> sample(const shape<Rank>& extents, std::uint64_t seed) {
  tensor<T, Rank> x(extents);
  testing::rng generator(seed);
  for (T& element : x.flat()) element = static_cast<T>(generator.uniform());
  return x;
}

tensor<std::int32_t, 1> counted(index_t count) {
  tensor<std::int32_t, 1> numbers({count});
  for (index_t i = 0; i < count; ++i) numbers(i) = static_cast<std::int32_t>(i);
  return numbers;
}

constexpr index_t B = 2, L = 100, H = 4, G = 2, K = 19, V = 21, D = 70, N = 16;

/// Tensors, pools and an operator of each kind, and a call of each verb. Nothing here has run before it is watched.
template <class T, class S>
struct arguments {
  tensor<T, 4> q = sample<T, 4>({B, L, G, K}, 1), k = sample<T, 4>({B, L, G, K}, 2), v = sample<T, 4>({B, L, H, V}, 3);
  tensor<accum_t<T>, 3> dt = sample<accum_t<T>, 3>({B, L, H}, 4), fine = sample<accum_t<T>, 3>({B, L, D}, 5);
  tensor<accum_t<T>, 1> A{{H}, accum_t<T>(-1)};
  tensor<accum_t<T>, 2> rates{{D, N}, accum_t<T>(-1)};
  tensor<T, 3> u = sample<T, 3>({B, L, D}, 6);
  tensor<T, 4> in = sample<T, 4>({B, L, 1, N}, 7);
  tensor<S, 4> pool{{B, H, K, V}};
  tensor<accum_t<T>, 1> steps{{D}, accum_t<T>(0.1)};
  tensor<S, 3> z{{B, H, K}}, line{{B, D, N}}, single{{B, D, 1}};
  tensor<S, 4> on_the_way{{B * (L + 10), H, K, V}};
  tensor<std::int32_t, 1> every = counted(B * L);
  tensor<T, 4> rows{{B, L, H, V}}, soft_rows{{B, L, G, K}};
  tensor<T, 3> scanned{{B, L, D}};
  view<T, 4> o = rows, softened = soft_rows;
  view<T, 3> y = scanned;

  linear_attention<T> attend{.q = q, .k = k, .v = v};
  linear_attention_state<S> remembered{.initial = pool, .final = pool, .z_initial = z, .z_final = z};
  noncausal_linear_attention<T> look{.q = q, .k = k, .v = v};
  ssd<T> dual{.x = v, .dt = dt, .A = A, .B = k, .C = q, .z = v, .dt_softplus = true};
  selective_scan<T> scan{.u = u, .dt = fine, .A = rates, .B = in, .C = in, .z = u, .dt_softplus = true};
  s4d<T, accum_t<T>> system{.u = u, .A = rates, .B = rates, .C = rates, .dt = steps};
  hgrn<T> gated{.x = u, .g = fine};
  softmax_attention<T> soft{.q = q, .k = q, .v = k};

  /// Leaves the first tokens of every call.
  void keep(index_t count) {
    const auto shorten = [count](auto&... x) { ((x = x.slice(1, 0, count)), ...); };
    shorten(attend.q, attend.k, attend.v, look.q, look.k, look.v, soft.q, soft.k, soft.v);
    shorten(dual.x, dual.dt, dual.B, dual.C, dual.z, scan.u, scan.dt, scan.B, scan.C, scan.z, system.u, gated.x,
            gated.g, o, softened, y);
  }

  template <class Watch>
  void each(const Watch& watch) {
    const state<S> kept{.initial = pool, .final = pool};
    const diagonal_state<S> held{.initial = line, .final = line};
    const auto matrix = [&](const std::string& name, const auto& op, const auto& st) {
      watch(name + " step", op, [&](context& ctx) { step(op, st, o, {}, ctx); });
      watch(name + " recurrent", op, [&](context& ctx) { recurrent(op, st, o, {}, ctx); });
      watch(name + " chunked", op, [&](context& ctx) { chunked(op, st, o, {}, ctx); });
      watch(name + " forward", op, [&](context& ctx) { forward(op, st, o, {}, ctx); });
    };
    matrix("linear_attention", attend, remembered);
    matrix("ssd", dual, kept);
    matrix("ssd with states kept on the way", dual,
           state<S>{.initial = pool,
                    .final = pool,
                    .snapshots = on_the_way.all().slice(0, 0, B * L),
                    .snapshot_slots = view<const std::int32_t, 2>(every.data(), {B, dual.x.extent(1)}),
                    .boundaries = on_the_way.all().slice(0, B * L, B * 10),
                    .boundary_slots = view<const std::int32_t, 2>(every.data(), {B, 10}),
                    .interval = 10});
    watch("selective_scan step", scan, [&](context& ctx) { step(scan, held, y, {}, ctx); });
    watch("selective_scan recurrent", scan, [&](context& ctx) { recurrent(scan, held, y, {}, ctx); });
    watch("selective_scan forward", scan, [&](context& ctx) { forward(scan, held, y, {}, ctx); });
    watch("s4d step", system, [&](context& ctx) { step(system, held, y, {}, ctx); });
    watch("s4d recurrent", system, [&](context& ctx) { recurrent(system, held, y, {}, ctx); });
    watch("s4d convolution", system, [&](context& ctx) { convolution(system, held, y, {}, ctx); });
    watch("s4d forward", system, [&](context& ctx) { forward(system, {}, y, {}, ctx); });
    const diagonal_state<S> own{.initial = single, .final = single};
    watch("hgrn step", gated, [&](context& ctx) { step(gated, own, y, {}, ctx); });
    watch("hgrn forward", gated, [&](context& ctx) { forward(gated, own, y, {}, ctx); });
    for (const form way : {form::left, form::right, form::automatic}) {
      watch("noncausal_linear_attention " + std::to_string(static_cast<int>(way)), look,
            [&](context& ctx) { forward(look, {}, o, {.form = way}, ctx); });
    }
    watch("softmax_attention", soft, [&](context& ctx) { forward(soft, softened, {}, ctx); });
  }
};

template <class Op>
void make_ready(const Op& op, context& ctx) {
  if constexpr (requires { reserve(op, {}, ctx); }) {
    reserve(op, {}, ctx);
  } else {
    ctx.reserve(scratch_bytes(op));
  }
}

template <class T, class S, class Watch>
void every_verb(const Watch& watch) {
  arguments<T, S>().each(watch);
}

}  // namespace

#if defined(HOOKED)

TEMPLATE_TEST_CASE("after reserve no verb allocates, locks or looks at a clock", "[realtime]", float, double,
                   bfloat16) {
  using S = accum_t<TestType>;
  every_verb<TestType, S>([](const std::string& name, const auto& op, const auto& call) {
    INFO(name);
    context ctx;
    make_ready(op, ctx);
    calls = 0;
    watching = true;
    call(ctx);
    watching = false;
    INFO("last: " << last_call.load());
    CHECK(calls.load() == 0);
  });
}

TEMPLATE_TEST_CASE("what is reserved for a prompt is enough for the steps after it", "[realtime]", float, double,
                   bfloat16) {
  arguments<TestType, accum_t<TestType>> prompt, rest;
  std::map<std::string, context> reserved;
  prompt.each([&](const std::string& name, const auto& op, const auto& call) {
    make_ready(op, reserved[name]);
    call(reserved[name]);
  });
  for (const index_t count : {60, 4, 1}) {
    rest.keep(count);
    rest.each([&](const std::string& name, const auto&, const auto& call) {
      INFO(name << ", " << count << " tokens");
      context& ctx = reserved[name];
      calls = 0;
      watching = true;
      call(ctx);
      watching = false;
      INFO("last: " << last_call.load());
      CHECK(calls.load() == 0);
    });
  }
}

TEST_CASE("the hooks see what they are meant to see", "[realtime]") {
  calls = 0;
  watching = true;
  void* volatile memory = std::malloc(8);
  std::free(memory);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  watching = false;
  CHECK(calls.load() == 3);
}

TEST_CASE("after reserve no verb calls the system", "[realtime]") {
  every_verb<float, float>([](const std::string& name, const auto& op, const auto& call) {
    INFO(name);
    context ctx;
    make_ready(op, ctx);
    CHECK(stays_in_user_space([&] { call(ctx); }));
  });
  // And the watch sees one.
  CHECK_FALSE(stays_in_user_space([] { syscall(SYS_getppid); }));
}

#endif

TEST_CASE("a caller's buffer that is too small is refused before anything is written", "[realtime]") {
  arguments<float, float> a;
  alignas(64) std::byte small[64];
  context ctx{std::span<std::byte>(small)};
  for (float& x : a.rows.flat()) x = 7;
  CHECK_THROWS_AS(forward(a.dual, {}, a.o, {}, ctx), std::invalid_argument);
  for (const float x : a.rows.flat()) REQUIRE(x == 7);
}

TEST_CASE("prechecked verbs are noexcept", "[realtime]") {
  arguments<float, float> a;
  const state<float> kept{.initial = a.pool, .final = a.pool};
  context ctx;
  STATIC_REQUIRE(noexcept(check(a.dual, kept, a.o)));
  STATIC_REQUIRE(noexcept(scratch_bytes(a.dual)));
  STATIC_REQUIRE(noexcept(step(prechecked, a.dual, kept, a.o, {}, ctx)));
  STATIC_REQUIRE(noexcept(forward(prechecked, a.dual, kept, a.o, {}, ctx)));
  STATIC_REQUIRE(noexcept(step(prechecked, a.attend, a.remembered, a.o, {}, ctx)));
  STATIC_REQUIRE(noexcept(forward(prechecked, a.look, {}, a.o, {}, ctx)));
  STATIC_REQUIRE(noexcept(step(prechecked, a.scan, {}, a.y, {}, ctx)));
  STATIC_REQUIRE(noexcept(forward(prechecked, a.soft, a.softened, {}, ctx)));
}
