// What holds for every operator that can be prepared.
#pragma once

#include <ogive/ops/prepared.hpp>
#include <ogive/testing/trials.hpp>

#include <limits>

#include "tests/catch.hpp"

namespace ogive::tests {

/// The operator with the steps of another rate.
template <class Op>
Op at_rate(Op op, double rate, testing::memory& room) {
  const auto dt = room.take<typename Op::accum>(op.dt.extents());
  for (index_t i = 0; i < dt.extent(0); ++i) {
    dt[i] = static_cast<typename Op::accum>(static_cast<double>(op.dt[i]) / rate);
  }
  op.dt = dt;
  return op;
}

template <class Op>
class prepared_trial {
  using T = typename Op::scalar;
  using output = view<T, 3>;

 public:
  explicit prepared_trial(std::uint64_t seed, index_t most) : x_(seed, most), y_(take()), expected_(take()) {}

  /// A stream in blocks, of any strides, has the bits of `recurrent`; after reset once more, and with other workers.
  void streams() {
    stream_equals(x_.op);
    filter_.reset();
    stream_equals(x_.op);
    static constexpr auto pool = [](int n, const worker_body& body) {
      for (int w = n; w-- > 0;) body(w);
    };
    filter_ = prepare(x_.op, room_for_all(), context::fork_join(pool, 3));
    stream_equals(x_.op);
  }

  /// From rest, by either form and whatever the state: within the operator's bounds, and the bits of `recurrent` there.
  void forwards() {
    const testing::definition<Op> defined(x_.op, {});
    recurrent(x_.op, {}, expected_);
    filter_.step(x_.op.u, {});
    filter_.forward(x_.op.u, y_, {.form = form::recurrent});
    CHECK(testing::difference(y_, expected_).empty());
    for (const form way : {form::automatic, form::convolution}) {
      filter_.forward(x_.op.u, y_, {.form = way});
      CHECK(testing::excess(y_, defined.o, defined.o_size, defined.relative + testing::unit_roundoff<T>()) ==
            std::string());
    }
  }

  /// Other steps are those of an operator that was prepared with them.
  void changes_rate() {
    if constexpr (ogive::detail::has_steps_in_time<Op>) {
      for (const double rate : {2.0, 0.6, 1.0}) {
        const Op other = at_rate(x_.op, rate, x_.room);
        if (!steps()) {
          CHECK_THROWS_AS(filter_.set_rate(rate), std::invalid_argument);
          CHECK_THROWS_AS(filter_.set_steps(other.dt), std::invalid_argument);
          continue;
        }
        filter_.reset();
        rate < 1 ? filter_.set_steps(other.dt) : filter_.set_rate(rate);
        stream_equals(other);
        const options how{.form = form::convolution};
        filter_.forward(other.u, y_, how);
        prepare(other, room_for_all()).forward(other.u, expected_, how);
        CHECK(testing::difference(y_, expected_).empty());
      }
      if (!steps()) return;
      // Refused, nothing changes.
      for (const double rate : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        CHECK_THROWS_AS(filter_.set_rate(rate), std::invalid_argument);
      }
      CHECK_THROWS_AS(filter_.set_steps(at_rate(x_.op, -1, x_.room).dt), std::invalid_argument);
      CHECK_THROWS_AS(filter_.set_steps(x_.op.dt.slice(0, 0, 0)), shape_error);
      filter_.reset();
      stream_equals(x_.op);
    }
  }

  /// A state that is kept and brought back goes on where it was.
  void keeps_states() {
    const index_t half = length() / 2, rest = length() - half;
    auto h = filter_.state();
    filter_.reset();
    filter_.step(x_.op.u.slice(1, 0, half), {});
    const auto kept = x_.room.copy(view<const typename Op::number, decltype(h)::rank>(h));
    filter_.step(x_.op.u.slice(1, half, rest), expected_.slice(1, half, rest));
    testing::memory::assign(h, kept);
    auto moved = std::move(filter_);
    moved.step(x_.op.u.slice(1, half, rest), y_.slice(1, half, rest));
    CHECK(testing::difference(y_.slice(1, half, rest), expected_.slice(1, half, rest)).empty());
    filter_ = std::move(moved);
  }

  /// y may be u, of a block or of all, where the sweep runs; not a part of it, and not where inputs are wanted once
  /// more.
  void works_in_place() {
    testing::memory elsewhere(testing::all_layouts[x_.random.integer(0, 5)]);
    const output z = elsewhere.template take<T>(x_.op.u.extents());
    const auto begin = [&] { testing::memory::assign(z, x_.op.u); };
    begin();
    filter_.reset();
    if (z.extents() != y_.extents()) {
      CHECK_FALSE(filter_.check(z, output(z.data(), y_.extents())));
      return;
    }
    recurrent(x_.op, {}, expected_);
    const index_t half = length() / 2;
    filter_.step(z.slice(1, 0, half), z.slice(1, 0, half));
    filter_.step(z.slice(1, half, length() - half), z.slice(1, half, length() - half));
    CHECK(testing::difference(z, expected_).empty());
    for (const form way : {form::recurrent, form::automatic}) {
      begin();
      filter_.forward(z, z, {.form = way});
      CHECK(testing::difference(z, expected_).empty());
    }
    begin();
    CHECK_THROWS_AS(filter_.forward(z, z, {.form = form::convolution}), shape_error);
    if (length() > 2) {
      const auto first = z.slice(1, 0, length() - 1), last = z.slice(1, 1, length() - 1);
      CHECK_THROWS_AS(filter_.step(first, last), shape_error);
      CHECK_THROWS_AS(filter_.step(last, first), shape_error);
    }
    CHECK(testing::difference(view<const T, 3>(z), x_.op.u).empty());
    CHECK(elsewhere.gaps_untouched());
  }

  void refuses_misfits() {
    CHECK_THROWS_AS(prepare(x_.op, {.sequences = 0}), std::invalid_argument);
    CHECK_THROWS_AS(prepare(x_.op, {.length = -1}), std::invalid_argument);
    CHECK_THROWS_AS(prepare(Op{}), shape_error);
    for (index_t b = 0; b < y_.extent(0); ++b) testing::memory::assign(y_[b], expected_[b]);
    const auto whole = x_.op.u;
    const auto refused = [&](const auto& u, const output& y) {
      INFO(filter_.check(u, y).text());
      CHECK_FALSE(filter_.check(u, y));
      CHECK_THROWS_AS(filter_.step(u, y), shape_error);
      CHECK_THROWS_AS(filter_.forward(u, y), shape_error);
    };
    const auto h = x_.room.copy(view<const typename Op::number, decltype(filter_.state())::rank>(filter_.state()));
    refused(view<const T, 3>(), y_);
    refused(whole.slice(0, 0, batch() - 1), y_);
    refused(whole.slice(2, 0, whole.extent(2) - 1), y_);
    refused(whole, y_.slice(2, 0, y_.extent(2) - 1));
    if (length() > 1) refused(whole.slice(1, 0, length() - 1), y_);
    if (length() > 1) refused(whole, output(y_.data(), y_.extents(), {y_.stride(0), 0, y_.stride(2)}));
    CHECK_THROWS_AS(filter_.forward(whole, {}), shape_error);
    CHECK_THROWS_AS(filter_.forward(whole, y_, {.form = form::chunked}), std::invalid_argument);
    auto unprepared = prepare(x_.op, {.sequences = batch()});
    CHECK_THROWS_AS(unprepared.forward(whole, y_, {.form = form::convolution}), std::invalid_argument);
    CHECK(testing::difference(y_, expected_).empty());
    CHECK(testing::difference(h, filter_.state()).empty());
  }

 private:
  output take() { return x_.room.template take<T>(testing::sampler<Op>::output(x_.op)); }
  index_t batch() const { return x_.op.u.extent(0); }
  index_t length() const { return x_.op.u.extent(1); }
  bool steps() const {
    if constexpr (requires { x_.op.rule; }) {
      return x_.op.rule != discretisation::none;
    } else if constexpr (requires { x_.op.Q; }) {
      return !x_.op.Q.present();
    } else {
      return true;
    }
  }

  preparation room_for_all() const { return {.sequences = batch(), .length = length(), .form = form::convolution}; }

  void stream_equals(const Op& op) {
    recurrent(op, {}, expected_);
    testing::memory elsewhere(testing::all_layouts[x_.random.integer(0, 5)]);
    const auto u = elsewhere.copy(op.u);
    const output y = elsewhere.template take<T>(y_.extents());
    for (index_t t = 0; t < length();) {
      const index_t most = x_.random.integer(0, 2) == 0 ? 70 : 5;
      const index_t count = std::min(length() - t, x_.random.integer(0, most));
      filter_.step(u.slice(1, t, count), y.slice(1, t, count));
      t += count;
    }
    CHECK(testing::difference(y, expected_).empty());
    CHECK(elsewhere.gaps_untouched());
  }
  /// From parameters that are gone afterwards.
  prepared<Op> make() const {
    testing::memory gone;
    return prepare(testing::copy_of(x_.op, gone), room_for_all());
  }

  testing::trial<Op> x_;
  output y_, expected_;
  prepared<Op> filter_ = make();
};

template <class Op>
void check_prepared(std::uint64_t seed) {
  for (std::uint64_t s = seed; s < seed + 24; ++s) {
    INFO("seed " << s);
    prepared_trial<Op> of(s, s % 4 == 0 ? 600 : 90);
    of.streams();
    of.forwards();
    of.changes_rate();
    of.keeps_states();
    of.works_in_place();
    of.refuses_misfits();
  }
}

}  // namespace ogive::tests
