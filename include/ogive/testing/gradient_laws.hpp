// The laws of backward: gradients are the slopes of the definition, in any chunks and strides, on any number of
// threads.
//
// A sampler that has gradients names them, `gradients`: pointers to the members of gradient<Op>, in the order of its
// tokens, keys with a length of their own, and parameters, of which the last may have none; smooth(op) moves arguments
// away from where they have no slope; strengthen(random, op) gives strong gates whose slopes differences can see, where
// those of harden(random, op) are too steep for them.
#pragma once

#include <ogive/engine/verbs.hpp>
#include <ogive/testing/finite_differences.hpp>
#include <ogive/testing/laws.hpp>

namespace ogive::testing {

/// Cotangents of what an operator puts out.
template <class Op>
struct cotangents_of {
  view<const typename Op::scalar, output_rank<Op>> o{};
  typename Op::default_state_gradient st{};
};

/// What a run of backward left behind.
template <class Op>
struct gradients_found {
  memory room;
  gradient<Op> d{};
  typename Op::default_state_gradient st{};
};

namespace detail {

template <class Op>
constexpr auto tokens_and_keys_of() {
  if constexpr (timeless<Op>) {
    return std::tuple_cat(sampler<Op>::tokens, sampler<Op>::keys);
  } else {
    return sampler<Op>::tokens;
  }
}
template <class Op>
constexpr auto fields_of() {
  return std::tuple_cat(tokens_and_keys_of<Op>(), sampler<Op>::parameters);
}

/// f(field of op, its gradient) for all.
template <class Op, class D, class F>
void for_gradients(const Op& op, D& d, const F& f) {
  constexpr auto fields = fields_of<Op>();
  constexpr auto gradients = sampler<Op>::gradients;
  static_assert(std::tuple_size_v<decltype(fields)> >= std::tuple_size_v<decltype(gradients)>);
  [&]<std::size_t... I>(std::index_sequence<I...>) { (f(op.*std::get<I>(fields), d.*std::get<I>(gradients)), ...); }
  (std::make_index_sequence<std::tuple_size_v<decltype(gradients)>>());
}

template <class Op>
cotangents_of<Op> draw_cotangents(rng& random, memory& room, const Op& op) {
  cotangents_of<Op> c;
  using S = typename Op::default_state_gradient::storage_type;
  c.o = draw_uniform<typename Op::scalar>(random, room, sampler<Op>::output(op));
  const index_t n = sequence_count(op);
  c.st.final = draw_uniform<S>(random, room, pool_extents<decltype(c.st.final)::rank>(n, sampler<Op>::slot(op)));
  if constexpr (requires { c.st.z_final; }) {
    c.st.z_final = draw_uniform<S>(random, room, pool_extents<3>(n, sampler<Op>::slot(op)));
  }
  return c;
}

template <class Op, class State>
gradients_found<Op> run_backward(const Op& op, const State& given, const cotangents_of<Op>& c, const options& how,
                                 context& ctx, layout where = layout::dense) {
  gradients_found<Op> found{memory(where)};
  for_gradients(op, found.d, [&](const auto& x, auto& d) {
    using View = std::remove_cvref_t<decltype(d)>;
    if (x.present()) d = found.room.template take<typename View::element_type>(x.extents());
  });
  using S = typename Op::default_state_gradient::storage_type;
  found.st = c.st;
  if (given.initial.present()) found.st.initial = found.room.template take<S>(c.st.final.extents());
  if constexpr (requires { found.st.z_initial; }) {
    if (given.z_initial.present()) found.st.z_initial = found.room.template take<S>(c.st.z_final.extents());
  }
  backward(op, given, c.o, found.st, found.d, how, ctx);
  return found;
}
/// Scratch of the size that `backward_scratch_bytes` says, all NaN.
struct poisoned_backward_scratch {
  tensor<std::byte, 1> bytes;
  context ctx;

  template <class Op>
  explicit poisoned_backward_scratch(const Op& op, const options& how = {})
      : bytes({static_cast<index_t>(backward_scratch_bytes(op, how))}, std::byte{0xff}), ctx(bytes.flat()) {}
};

template <class Op, class State>
gradients_found<Op> run_backward(const Op& op, const State& given, const cotangents_of<Op>& c, const options& how,
                                 layout where = layout::dense) {
  poisoned_backward_scratch scratch(op, how);
  return run_backward(op, given, c, how, scratch.ctx, where);
}

template <class Op, class F>
void for_found(const Op& op, const gradients_found<Op>& found, const F& f) {
  for_gradients(op, found.d, [&](const auto&, const auto& d) { f(d); });
  f(found.st.initial);
  if constexpr (requires { found.st.z_initial; }) f(found.st.z_initial);
}

/// Where two sets of gradients differ in a bit; or, with a bound, by more than it. In words.
template <class Op>
std::string gradient_gap(const Op& op, const gradients_found<Op>& a, const gradients_found<Op>& b, double bound = 0) {
  std::vector<std::vector<double>> others;
  for_found(op, b, [&](const auto& d) { others.push_back(d.present() ? flatten(d) : std::vector<double>()); });
  std::size_t field = 0;
  std::ostringstream out;
  out.precision(17);
  for_found(op, a, [&](const auto& d) {
    const auto& other = others[field++];
    if (!d.present() || out.tellp() > 0) return;
    const auto mine = flatten(d);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (bound > 0 ? std::fabs(mine[i] - other[i]) <= bound : mine[i] == other[i]) continue;
      out << "gradient " << field << ", element " << i << " is " << mine[i] << ", not " << other[i];
      return;
    }
  });
  return out.str();
}

template <class Op>
double largest_gradient(const Op& op, const gradients_found<Op>& found) {
  double most = 0;
  for_found(op, found, [&](const auto& d) {
    if (!d.present()) return;
    for (const double x : flatten(d)) most = std::fmax(most, std::fabs(x));
  });
  return most;
}

/// Lengths, packed sequences, hard gates, an initial state: by turns.
template <class Op>
struct gradient_trial : trial<Op> {
  memory kept{};
  state_for<Op, storage_of<Op>> given{};
  cotangents_of<Op> c;

  gradient_trial(std::uint64_t from, index_t most) : trial<Op>(from, most, from % 3 == 2 ? 1 : 0) {
    if (from % 3 == 1) this->shorten();
    if constexpr (requires { this->op.offsets; }) {
      if (from % 3 == 2) this->pack();
    }
    if (coin(this->random)) given = draw_state<storage_of<Op>>(this->random, kept, this->op, sequence_count(this->op));
    c = draw_cotangents(this->random, kept, this->op);
  }
};

/// Σ o ⊙ d_o + Σ S ⊙ d_S of the definition, and the sum of the magnitudes.
template <class Op>
struct definition_loss {
  const gradient_trial<Op>& x;
  memory room{};
  view<double, output_rank<Op>> o = room.template take<double>(sampler<Op>::output(x.op));
  defined_state<widest<storage_of<Op>>, decltype(x.given.initial)::rank> st{};

  explicit definition_loss(const gradient_trial<Op>& trial) : x(trial) {
    give_finals(room, x.op, sequence_count(x.op), st);
  }
  struct value {
    double sum = 0, size = 0;
    template <class A, class B>
    void add(const A& a, const B& b) {
      const auto p = flatten(a), q = flatten(b);
      for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] * q[i], size += std::fabs(p[i] * q[i]);
    }
  };
  value operator()() {
    st.initial = x.given.initial;
    if constexpr (requires { x.given.z_initial; }) st.z_initial = x.given.z_initial;
    sampler<Op>::template define<double>(x.op, st, o);
    value all;
    all.add(o, x.c.o);
    all.add(st.final, x.c.st.final);
    if constexpr (requires { x.c.st.z_final; }) all.add(st.z_final, x.c.st.z_final);
    return all;
  }
};

/// Chunks of these sizes; and the forms, where there are more than chunks.
template <class Op>
std::vector<options> backward_ways(std::initializer_list<index_t> chunks) {
  std::vector<options> all;
  for (const index_t chunk : chunks) all.push_back({.chunk = chunk});
  if constexpr (has_convolution<Op>) {
    for (const form way : {form::recurrent, form::convolution}) all.push_back({.form = way});
  }
  return all;
}
inline const char* named(const options& how) {
  return how.form == form::convolution ? ", convolution" : how.form == form::recurrent ? ", recurrent" : "";
}

template <class Op>
inline constexpr bool hardens = requires(rng random, Op op) {
  sampler<Op>::harden(random, op);
};

/// Gradients are the slopes of the definition, for elements drawn from every field, of every other sample under strong
/// gates. What all tokens share acts once for each of them, as exp(L g) does: it is moved by an L-th of the step, for L
/// times the rounding.
template <class Op>
void gradients_are_slopes(std::uint64_t seed, report& found) {
  static_assert(std::is_same_v<typename Op::scalar, double>, "differences want double");
  for_seeds(seed, 6, [&](std::uint64_t s) {
    gradient_trial<Op> x(s, 33);
    if constexpr (requires { sampler<Op>::strengthen(x.random, x.op); }) {
      if (coin(x.random)) sampler<Op>::strengthen(x.random, x.op);
    } else if constexpr (requires { x.op.dt; }) {            // steps have to stay positive
    } else if constexpr (requires { x.given.z_initial; }) {  // slopes of quotients change too fast
    } else if constexpr (hardens<Op>) {
      if (coin(x.random)) sampler<Op>::harden(x.random, x.op);
      if constexpr (requires { x.op.qk_l2norm = 1; }) {
        if (x.op.qk_l2norm) x.op.qk_l2norm = 1;  // short rows are steep
      }
    }
    if constexpr (requires { sampler<Op>::smooth(x.op); }) sampler<Op>::smooth(x.op);
    definition_loss<Op> loss(x);
    const double bound = 64 * std::pow(std::numeric_limits<double>::epsilon(), 0.8) * (1 + loss().size);
    std::vector<gradients_found<Op>> all;
    const std::vector<options> hows = backward_ways<Op>({0, 1, 3, 16, 17});
    for (const options& how : hows) all.push_back(run_backward(x.op, x.given, x.c, how));
    const auto check = [&](const std::string& what, const auto& field, index_t acts, const auto& gradient_in) {
      if (!field.present()) return;
      // Complex numbers are two each, as `flatten` has them.
      using Number = typename std::remove_cvref_t<decltype(field)>::value_type;
      constexpr auto parts = static_cast<index_t>(sizeof(Number) / sizeof(double));
      index_t size = parts;
      for (const index_t n : field.extents()) size *= n;
      for (int sample = 0; sample < 3 && size > 0; ++sample) {
        const index_t element = x.random.integer(0, size - 1);
        double* at = nullptr;
        for_each(field, [&](const Number& number, index_t i) {
          if (i == element / parts) at = reinterpret_cast<double*>(const_cast<Number*>(&number)) + element % parts;
        });
        const double there = *at, times = static_cast<double>(acts);
        double shift = 0;
        const double slope = times * finite_differences(view<double, 1>(&shift, {1}), [&] {
                               *at = there + shift / times;
                               return loss().sum;
                             })(0);
        *at = there;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const double mine = flatten(gradient_in(all[i]))[static_cast<std::size_t>(element)];
          found.expect(std::fabs(mine - slope) <= times * bound, x, what, " element ", element, " in chunks of ",
                       hows[i].chunk, named(hows[i]), ": ", mine, ", the slope is ", slope, " within ", times * bound);
        }
      }
    };
    constexpr int of_tokens = std::tuple_size_v<decltype(tokens_and_keys_of<Op>())>;
    const index_t length = std::max<index_t>(1, length_of(x.op));
    int field = 0;
    auto& first = all.front();
    for_gradients(x.op, first.d, [&](const auto& values, const auto& d) {
      const int number = field++;
      using View = std::remove_cvref_t<decltype(d)>;
      check("gradient " + std::to_string(number), values, number < of_tokens ? 1 : length,
            [&](const gradients_found<Op>& run) {
              View mine;
              int i = 0;
              for_gradients(x.op, run.d, [&](const auto&, const auto& other) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(other)>, View>) {
                  if (i == number) mine = other;
                }
                ++i;
              });
              return mine;
            });
    });
    check("initial state", x.given.initial, 1, [](const gradients_found<Op>& run) { return run.st.initial; });
    if constexpr (requires { first.st.z_initial; }) {
      check("initial z", x.given.z_initial, 1, [](const gradients_found<Op>& run) { return run.st.z_initial; });
    }
    for (const auto& run : all) found.expect(run.room.gaps_untouched(), x, ": wrote beside its gradients");
  });
}

/// How far rounding may take a gradient, beside the largest one: that of the sums of the forward and of the backward,
/// once a token where writes depend on what was read.
template <class Op>
double gradient_bound(const Op& op, double most) {
  index_t roundings = 2 * sampler<Op>::roundings(op);
  if constexpr (requires { sampler<Op>::corrects; }) roundings *= std::max<index_t>(1, length_of(op));
  return tolerance<accum_t<typename Op::scalar>>(roundings) * (1 + most);
}

/// Chunks change rounding alone; strides and threads nothing; gradients that are added to others are their sum; one
/// that is not wanted is not missed.
template <class Op>
void backward_is_one(std::uint64_t seed, report& found) {
  for_seeds(seed, 4, [&](std::uint64_t s) {
    gradient_trial<Op> x(s, 100);
    const auto dense = run_backward(x.op, x.given, x.c, {});
    const double bound = gradient_bound(x.op, largest_gradient(x.op, dense));
    for (const options& how : backward_ways<Op>({1, 7, 16, 100})) {
      const std::string gap = gradient_gap(x.op, run_backward(x.op, x.given, x.c, how), dense, bound);
      found.none(gap, x, "chunks of ", how.chunk, named(how));
    }
    for (const layout where : all_layouts) {
      memory room(where);
      auto given = x.given;
      for_pools(given, [&](auto& initial, auto&) { initial = room.copy(initial); });
      const auto got = run_backward(copy_of(x.op, room), given, x.c, {}, where);
      found.none(gradient_gap(x.op, got, dense), x, "layout ", static_cast<int>(where));
      found.expect(got.room.gaps_untouched(), x, "layout ", static_cast<int>(where), ": wrote into gaps");
    }
    thread_pool pool;
    for (const int workers : {2, 5}) {
      context forked = context::fork_join(pool, workers);
      found.none(gradient_gap(x.op, run_backward(x.op, x.given, x.c, {}, forked), dense), x, workers, " workers");
    }
    auto twice = run_backward(x.op, x.given, x.c, {});
    backward(x.op, x.given, x.c.o, twice.st, twice.d, {.accumulate = true});
    std::vector<std::vector<double>> once;
    for_found(x.op, dense, [&](const auto& d) { once.push_back(d.present() ? flatten(d) : std::vector<double>()); });
    std::size_t field = 0;
    for_found(x.op, twice, [&](const auto& d) {
      const auto& one = once[field++];
      if (!d.present()) return;
      const auto two = flatten(d);
      for (std::size_t i = 0; i < two.size(); ++i) {
        const double room = 8 * unit_roundoff<typename Op::scalar>() * std::fabs(one[i]) + bound;
        found.expect(std::fabs(two[i] - 2 * one[i]) <= room, x, "added twice: ", two[i], " of ", one[i]);
      }
    });
    gradients_found<Op> none{memory()};
    backward(x.op, x.given, x.c.o, none.st, none.d);
    for_gradients(x.op, none.d, [&](const auto& values, auto& d) {
      if (!values.present()) return;
      gradients_found<Op> alone{memory()};
      alone.st.final = x.c.st.final;
      if constexpr (requires { alone.st.z_final; }) alone.st.z_final = x.c.st.z_final;
      using View = std::remove_cvref_t<decltype(d)>;
      View mine, whole;
      for_gradients(x.op, alone.d, [&](const auto& other, auto& wanted) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(wanted)>, View>) {
          if (static_cast<const void*>(&other) != static_cast<const void*>(&values)) return;
          wanted = mine = alone.room.template take<typename View::element_type>(values.extents());
        }
      });
      for_gradients(x.op, dense.d, [&](const auto& other, const auto& all) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(all)>, View>) {
          if (static_cast<const void*>(&other) == static_cast<const void*>(&values)) whole = all;
        }
      });
      poisoned_backward_scratch scratch(x.op);
      backward(x.op, x.given, x.c.o, alone.st, alone.d, {}, scratch.ctx);
      found.none(difference(mine, whole), x, "alone");
    });
  });
}

/// In a narrower type gradients are those of double on the same numbers, every other time under strong gates.
template <class Narrow, class Wide>
void gradients_round(std::uint64_t seed, report& found) {
  for_seeds(seed, 6, [&](std::uint64_t s) {
    gradient_trial<Narrow> x(s, 65);
    gradient_trial<Wide> y(s, 65);
    if constexpr (hardens<Narrow>) {
      if (coin(x.random)) sampler<Narrow>::harden(x.random, x.op), sampler<Wide>::harden(y.random, y.op);
    }
    const auto widen = [&](auto& to, const auto& from) {
      using W = std::remove_const_t<typename std::remove_cvref_t<decltype(to)>::element_type>;
      to = y.room.template copy<W>(from);
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (widen(y.op.*std::get<I>(fields_of<Wide>()), x.op.*std::get<I>(fields_of<Narrow>())), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields_of<Wide>())>>());
    if constexpr (requires { *x.op.scale; }) {
      if (x.op.scale) y.op.scale = *x.op.scale;
    } else if constexpr (requires { y.op.scale; }) {
      y.op.scale = x.op.scale;
    }
    if constexpr (requires { y.op.dt_max; }) y.op.dt_min = x.op.dt_min, y.op.dt_max = x.op.dt_max;
    widen(y.given.initial, x.given.initial);
    if constexpr (requires { y.given.z_initial; }) widen(y.given.z_initial, x.given.z_initial);
    widen(y.c.o, x.c.o);
    widen(y.c.st.final, x.c.st.final);
    if constexpr (requires { y.c.st.z_final; }) widen(y.c.st.z_final, x.c.st.z_final);
    const auto expected = run_backward(y.op, y.given, y.c, {});
    const double most = largest_gradient(y.op, expected);
    const double stored = unit_roundoff<typename Narrow::scalar>() * most;
    std::vector<std::vector<double>> wide;
    for_found(y.op, expected, [&](const auto& d) { wide.push_back(d.present() ? flatten(d) : std::vector<double>()); });
    for (const options& how : backward_ways<Narrow>({0, 1, 16})) {
      const auto got = run_backward(x.op, x.given, x.c, how);
      std::size_t field = 0;
      for_found(x.op, got, [&](const auto& d) {
        const auto& right = wide[field++];
        if (!d.present()) return;
        const auto mine = flatten(d);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          found.expect(std::fabs(mine[i] - right[i]) <= gradient_bound(x.op, most) + stored, x, "gradient ", field,
                       " in chunks of ", how.chunk, named(how), ": ", mine[i], ", in double ", right[i]);
        }
      });
    }
  });
}

/// Truncated backpropagation: a sequence in two pieces, the state carried on and its gradient carried back, has the
/// gradients of the whole; those of what all tokens share add up.
template <class Op>
void pieces_join(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 4, [&](std::uint64_t s) {
    gradient_trial<Op> x(s - s % 3, 65);  // neither padded nor packed
    const index_t L = length_of(x.op), cut = x.random.integer(0, L);
    const auto whole = run_backward(x.op, x.given, x.c, {});
    const Op head = tokens_of(x.op, 0, cut), tail = tokens_of(x.op, cut, L - cut);
    const auto there = run<S>({way::kind::forward}, head, x.given);
    auto carried = there.st;
    for_pools(carried, [](auto& initial, auto& final) { initial = final; });
    auto c = x.c;
    c.o = x.c.o.slice(1, cut, L - cut);
    const auto late = run_backward(tail, carried, c, {});
    c.o = x.c.o.slice(1, 0, cut);
    c.st.final = late.st.initial;
    if constexpr (requires { c.st.z_final; }) c.st.z_final = late.st.z_initial;
    const auto early = run_backward(head, x.given, c, {});
    const double bound = gradient_bound(x.op, largest_gradient(x.op, whole));
    const auto near = [&](const auto& joined, const std::vector<double>& expected) {
      for (std::size_t i = 0; i < joined.size(); ++i) {
        found.expect(std::fabs(joined[i] - expected[i]) <= bound, x, "cut at ", cut, ": ", joined[i], ", whole ",
                     expected[i]);
      }
    };
    if (whole.st.initial.present()) near(flatten(early.st.initial), flatten(whole.st.initial));
    constexpr int of_tokens = std::tuple_size_v<std::remove_cvref_t<decltype(sampler<Op>::tokens)>>;
    std::vector<std::vector<double>> first, second;
    for_gradients(x.op, early.d, [&](const auto&, const auto& d) {
      first.push_back(d.present() ? flatten(d) : std::vector<double>());
    });
    for_gradients(x.op, late.d, [&](const auto&, const auto& d) {
      second.push_back(d.present() ? flatten(d) : std::vector<double>());
    });
    int field = 0;
    for_gradients(x.op, whole.d, [&](const auto&, const auto& d) {
      const int number = field++;
      if (!d.present()) return;
      const auto& a = first[static_cast<std::size_t>(number)];
      const auto& b = second[static_cast<std::size_t>(number)];
      if (number >= of_tokens) {
        std::vector<double> sum(a);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
        near(sum, flatten(d));
      } else {
        near(a, flatten(d.slice(1, 0, cut)));
        near(b, flatten(d.slice(1, cut, L - cut)));
      }
    });
  });
}

/// Of no sequences, no rows or an empty row of packed ones, lists of theirs being empty too, gradients of what all
/// tokens share are zero.
template <class Op>
void nothing_has_no_slope(std::uint64_t seed, report& found) {
  constexpr bool packs = requires { std::declval<Op>().offsets; };
  for (const bool packed : {false, packs}) {
    rng random(seed);
    memory room;
    Op op = sampler<Op>::draw(random, room, packed ? 1 : 0, packed ? 0 : 3);
    const std::vector<std::int32_t> offsets{0}, none;
    if constexpr (packs) {
      if (packed) op.offsets = offsets;
    }
    op.lengths = none;
    const auto c = draw_cotangents(random, room, op);
    for (const options& how : backward_ways<Op>({0})) {
      const auto got = run_backward(op, state_for<Op, storage_of<Op>>{}, c, how);
      bool zero = true;
      for_found(op, got, [&](const auto& d) {
        if (!d.present()) return;
        for (const double number : flatten(d)) zero = zero && number == 0;
      });
      found.expect(zero, Op::name, packed ? ", packed" : "", named(how), ": a gradient that is not zero");
    }
  }
}

/// Strong gates: gradients stay finite, in any chunks.
template <class Op>
void strong_gates_have_gradients(std::uint64_t seed, report& found) {
  for_seeds(seed, 6, [&](std::uint64_t s) {
    gradient_trial<Op> x(s, 65);
    sampler<Op>::harden(x.random, x.op);
    const auto got = run_backward(x.op, x.given, x.c, {});
    for_found(x.op, got, [&](const auto& d) {
      if (!d.present()) return;
      for (const double number : flatten(d)) found.expect(std::isfinite(number), x, "a gradient is ", number);
    });
    const double bound = gradient_bound(x.op, largest_gradient(x.op, got));
    for (const index_t chunk : {1, 16}) {
      found.none(gradient_gap(x.op, run_backward(x.op, x.given, x.c, {.chunk = chunk}), got, bound), x, "chunks of ",
                 chunk);
    }
  });
}

}  // namespace detail

/// The laws of an operator's backward, in double, where differences show slopes.
template <class Op>
std::vector<law> gradient_laws() {
  std::vector<law> all{{"chunks, strides, threads and sums change no gradient", detail::backward_is_one<Op>},
                       {"nothing has no slope", detail::nothing_has_no_slope<Op>}};
  if constexpr (!timeless<Op>) all.push_back({"pieces join", detail::pieces_join<Op>});
  if constexpr (std::is_same_v<typename Op::scalar, double>) {
    all.push_back({"gradients are slopes", detail::gradients_are_slopes<Op>});
  }
  if constexpr (detail::hardens<Op>) {
    all.push_back({"strong gates have gradients", detail::strong_gates_have_gradients<Op>});
  }
  return all;
}

/// Those of one type against those of double.
template <class Narrow, class Wide>
law law_of_rounded_gradients() {
  return {"gradients are those of double, rounded", detail::gradients_round<Narrow, Wide>};
}

}  // namespace ogive::testing
