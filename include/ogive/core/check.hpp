// L1: the questions every verb asks at its door. The first one that fails writes the status; the rest are silent.
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/core/state.hpp>

#include <bitset>

namespace ogive::core {

/// Whether `address` is an element of x, for strides that nest (each larger than the span of the smaller ones). Views
/// that do not nest answer false: overlap is refused only where it is certain.
template <class T, std::size_t Rank>
bool holds(const view<T, Rank>& x, const void* address) noexcept {
  const auto distance =
      static_cast<index_t>(reinterpret_cast<std::intptr_t>(address) - reinterpret_cast<std::intptr_t>(x.data()));
  constexpr auto size = static_cast<index_t>(sizeof(T));
  if (distance % size != 0) return false;
  index_t rest = distance / size;  // from the lowest element on, which is the first where no axis runs backwards
  shape<Rank> steps = x.strides();
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (steps[axis] >= 0) continue;
    rest -= (x.extent(axis) - 1) * steps[axis];
    steps[axis] = -steps[axis];
  }
  std::array<bool, Rank> done{};
  for (std::size_t turn = 0; turn < Rank; ++turn) {
    std::size_t widest = Rank;
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      if (!done[axis] && (widest == Rank || steps[axis] > steps[widest])) widest = axis;
    }
    done[widest] = true;
    if (steps[widest] == 0) continue;
    if (rest < 0) return false;
    rest -= std::min(rest / steps[widest], x.extent(widest) - 1) * steps[widest];
  }
  return rest == 0;
}

template <class T, std::size_t Rank>
const void* last_element(const view<T, Rank>& x) noexcept {
  index_t offset = 0;
  for (std::size_t axis = 0; axis < Rank; ++axis) offset += (x.extent(axis) - 1) * x.stride(axis);
  return x.data() + offset;
}

/// The addresses from the lowest element of a view on, and past its highest one.
template <class T, std::size_t Rank>
std::array<std::intptr_t, 2> reach(const view<T, Rank>& x) noexcept {
  index_t low = 0, high = 1;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    const index_t far = (x.extent(axis) - 1) * x.stride(axis);
    (far < 0 ? low : high) += far;
  }
  const auto at = reinterpret_cast<std::intptr_t>(x.data());
  constexpr auto size = static_cast<index_t>(sizeof(T));
  return {at + low * size, at + high * size};
}

/// Whether two views certainly have an element in common.
template <class T, std::size_t RankT, class U, std::size_t RankU>
bool share(const view<T, RankT>& x, const view<U, RankU>& y) noexcept {
  if (x.empty() || y.empty()) return false;
  const auto a = reach(x), b = reach(y);
  if (a[1] <= b[0] || b[1] <= a[0]) return false;
  return holds(x, y.data()) || holds(y, x.data()) || holds(x, last_element(y)) || holds(y, last_element(x));
}

/// Whether two indices of x certainly are the same element: a broadcast, or two axes whose steps meet.
template <class T, std::size_t Rank>
bool folds(const view<T, Rank>& x) noexcept {
  if (x.empty()) return false;
  for (std::size_t i = 0; i < Rank; ++i) {
    if (x.extent(i) < 2) continue;
    if (x.stride(i) == 0) return true;
    for (std::size_t j = 0; j < i; ++j) {
      if (x.extent(j) < 2) continue;
      index_t a = x.stride(i) < 0 ? -x.stride(i) : x.stride(i);
      index_t b = x.stride(j) < 0 ? -x.stride(j) : x.stride(j);
      const index_t steps_i = b;
      const index_t steps_j = a;
      while (b != 0) a = std::exchange(b, a % b);
      if (steps_i / a < x.extent(i) && steps_j / a < x.extent(j)) return true;
    }
  }
  return false;
}

class checker {
 public:
  explicit checker(const char* op) noexcept : op_(op) {}

  explicit operator bool() const noexcept { return static_cast<bool>(result_); }
  const status& result() const noexcept { return result_; }

  /// Begins a refusal: "op: field "; the caller appends what is wrong.
  status& refuse(const char* field, status_code code = status_code::shape) noexcept {
    result_ = status(code);
    return result_ << op_ << ": " << field << " ";
  }

  /// A field that must be there.
  template <class T, std::size_t Rank>
  checker& given(const char* field, const view<T, Rank>& x) noexcept {
    if (*this && !x.present()) refuse(field) << "is absent; give a view of rank " << static_cast<index_t>(Rank);
    return *this;
  }

  /// A number that is not below 0, nor NaN.
  template <class Number>
  checker& not_negative(const char* field, const Number& x) noexcept {
    if (*this && !(x >= Number(0))) {
      refuse(field, status_code::value) << (x < Number(0) ? "is negative" : "is not a number")
                                        << ", must be at least 0";
    }
    return *this;
  }

  /// Extents must be `want` (`letters`, and what follows them, say what they are), where −1 accepts any; absent views
  /// pass.
  template <class T, std::size_t Rank>
  checker& extents(const char* field, const view<T, Rank>& x, const shape<Rank>& want, const char* letters,
                   const char* more = "") noexcept {
    if (!*this || !x.present() || fits(x, want)) return *this;
    expected(refuse(field) << "has shape " << std::span<const index_t>(x.extents()), want) << letters << more;
    return *this;
  }

  /// `whole` must be a multiple of `part`, and both at least 1.
  checker& divides(const char* part_name, index_t part, const char* whole_name, index_t whole) noexcept {
    if (*this && (part < 1 || whole < 1 || whole % part != 0)) {
      refuse(part_name) << "= " << part << " must divide " << whole_name << " = " << whole;
    }
    return *this;
  }

  /// A view that is written: no two indices may be the same element.
  template <class T, std::size_t Rank>
  checker& output(const char* field, const view<T, Rank>& x) noexcept {
    if (*this && folds(x)) {
      refuse(field) << "of shape " << std::span<const index_t>(x.extents()) << " and strides "
                    << std::span<const index_t>(x.strides()) << " is written, but several of its indices are one "
                    << "element; give it memory of its own";
    }
    return *this;
  }

  /// A written view and another one must have no element in common.
  template <class T, std::size_t RankT, class U, std::size_t RankU>
  checker& apart(const char* written, const view<T, RankT>& x, const char* other, const view<U, RankU>& y) noexcept {
    if (*this && share(x, y)) {
      refuse(written) << "of shape " << own_extents(x) << " is written and overlaps " << other << " of shape "
                      << std::span<const index_t>(y.extents()) << "; give it memory of its own";
    }
    return *this;
  }

  /// No two of the written views that `all(f)` names, f(name, view), have an element in common. They are the same
  /// objects each time.
  template <class All>
  checker& apart_from_each_other(const All& all) noexcept {
    all([&](const char* name, const auto& x) noexcept {
      all([&](const char* other, const auto& y) noexcept {
        if (static_cast<const void*>(&x) != static_cast<const void*>(&y)) apart(name, x, other, y);
      });
    });
    return *this;
  }

  /// Packed sequences: one batch row of `length` tokens, offsets 0 … length that never fall.
  checker& offsets(const integers& at, index_t batch, index_t length) noexcept {
    if (!*this || !at.present()) return *this;
    if (batch != 1) {
      refuse("offsets") << "need a batch of one packed row, got B = " << batch;
    } else if (at.size() < 1 || at.at(0) != 0 || at.at(at.size() - 1) != length) {
      refuse("offsets") << "must run from 0 to L = " << length << "; they have " << at.size() << " entries";
      if (at.size() > 0) result_ << ", from " << at.at(0) << " to " << at.at(at.size() - 1);
    } else {
      for (index_t i = 1; *this && i < at.size(); ++i) {
        if (at.at(i) < at.at(i - 1)) {
          refuse("offsets") << "fall from " << at.at(i - 1) << " to " << at.at(i) << " at entry " << i;
        }
      }
    }
    return *this;
  }

  /// One length per sequence, not negative.
  checker& lengths(const integers& list, index_t sequences) noexcept {
    if (!*this || !list.present()) return *this;
    if (list.size() != sequences) {
      refuse("lengths") << "has " << list.size() << " entries for " << sequences << " sequences";
    }
    for (index_t i = 0; *this && i < list.size(); ++i) {
      if (list.at(i) < 0) refuse("lengths") << "entry " << i << " is " << list.at(i) << ", must not be negative";
    }
    return *this;
  }

  checker& chunk(const options& how) noexcept {
    if (*this && how.chunk < 0) {
      refuse("chunk", status_code::value) << "= " << how.chunk << " must be 0 (automatic) or a number of tokens";
    }
    if (*this && how.time_split < 0) {
      refuse("time_split", status_code::value)
          << "= " << how.time_split << " must be 0 (automatic) or a number of tokens";
    }
    return *this;
  }

  /// The pools of a state against what the operator holds per slot, the slots against the pools, and the written
  /// pool against itself: no slot is written twice, none is written by one sequence and read by another.
  template <class S, std::size_t Rank>
  checker& pools(const char* initial_name, const view<const S, Rank>& initial, const char* final_name,
                 const view<S, Rank>& final, const view<const std::int32_t, 1>& initial_slots,
                 const view<const std::int32_t, 1>& final_slots, index_t sequences, const shape<Rank>& slot,
                 const char* letters) noexcept {
    const bool one_pool = initial.present() && initial.data() == final.data() && initial.strides() == final.strides();
    const char* other = one_pool && initial.extents() == final.extents() ? final_name : nullptr;
    pool(initial_name, other, initial, "initial_slots", initial_slots, sequences, slot, letters);
    pool(final_name, nullptr, final, "final_slots", final_slots, sequences, slot, letters);
    output(final_name, final);
    slots("initial_slots", initial_slots, sequences, initial.present() ? initial.extent(0) : -1);
    slots("final_slots", final_slots, sequences, final.present() ? final.extent(0) : -1);
    if (!*this || !final.present() || final.empty()) return *this;
    if (!one_pool) apart(final_name, final, initial_name, initial);
    if (!final_slots.present() && !(one_pool && initial_slots.present())) return *this;
    for (index_t a = 0; a < sequences && *this; ++a) {
      const index_t written = slot_of(final_slots, a);
      if (written < 0) continue;
      for (index_t b = 0; b < sequences && *this; ++b) {
        if (a < b && written == slot_of(final_slots, b)) {
          refuse("final_slots") << "sends sequences " << a << " and " << b << " to one slot " << written;
        } else if (a != b && one_pool && written == slot_of(initial_slots, b)) {
          refuse("final_slots") << "sequence " << a << " writes slot " << written << " of the pool that sequence " << b
                                << " reads it from";
        }
      }
    }
    return *this;
  }

  /// A pool of states that are kept on the way, `slot` its extents, and its list of slots: −1, or a slot that nothing
  /// else uses. `others(f)` calls f(name, pool, name of the slots, slots) for each other pool of the state; each may be
  /// the same memory.
  template <class S, std::size_t Rank, class Others>
  checker& kept(const char* field, const view<S, Rank>& pool, const shape<Rank>& slot, const char* letters,
                const char* slots_name, const view<const std::int32_t, 2>& slots, const Others& others) noexcept {
    extents(field, pool, slot, letters).output(field, pool);
    if (!*this || !pool.present()) return *this;
    const auto one_pool = [&](const auto& other) noexcept {
      return other.present() && other.data() == pool.data() && other.strides() == pool.strides();
    };
    others([&](const char* name, const auto& other, const char*, const auto&) noexcept {
      if (!one_pool(other)) apart(field, pool, name, other);
    });
    const index_t held = pool.extent(0);
    for_slots(slots, held, [&](index_t at) noexcept {
      if (*this && (at < -1 || at >= held)) {
        refuse(slots_name) << "names slot " << at << " of " << field << ", must be −1 or below " << held;
      }
    });
    constexpr index_t most = 4096;  // slots at a time
    for (index_t base = 0; *this && base < held; base += most) {
      std::bitset<most> kept, used;
      const auto mark = [&](std::bitset<most>& set) noexcept {
        return [&, base](index_t at) noexcept {
          if (at >= base && at < base + most) set[static_cast<std::size_t>(at - base)] = true;
        };
      };
      others([&](const char*, const auto& other, const char*, const auto& list) noexcept {
        if (one_pool(other)) for_slots(list, other.extent(0), mark(used));
      });
      for_slots(slots, held, [&](index_t at) noexcept {
        if (!*this || at < base || at >= base + most) return;
        const auto bit = static_cast<std::size_t>(at - base);
        if (kept[bit]) {
          refuse(slots_name) << "names slot " << at << " of " << field << " twice; give each state a slot of its own";
        } else if (used[bit]) {
          others([&](const char* name, const auto& other, const char* list_name, const auto& list) noexcept {
            if (!one_pool(other)) return;
            for_slots(list, other.extent(0), [&](index_t its) noexcept {
              if (*this && its == at) shared_slot(slots_name, field, at, name, list.present() ? list_name : nullptr);
            });
          });
        }
        kept[bit] = true;
      });
    }
    return *this;
  }

  static index_t slot_of(const view<const std::int32_t, 1>& slots, index_t sequence) noexcept {
    return slots.present() ? static_cast<index_t>(slots[sequence]) : sequence;
  }

 private:
  template <class T, std::size_t Rank>
  static bool fits(const view<T, Rank>& x, const shape<Rank>& want) noexcept {
    bool same = true;
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      same = same && x.extent(axis) >= 0 && (want[axis] == -1 || x.extent(axis) == want[axis]);
    }
    return same;
  }
  /// The extents of what is written, without the axes that stand before them where all tokens share it.
  template <class T, std::size_t Rank>
  static std::span<const index_t> own_extents(const view<T, Rank>& x) noexcept {
    std::size_t axis = 0;
    while (axis + 1 < Rank && x.stride(axis) == 0) ++axis;
    return std::span<const index_t>(x.extents()).subspan(axis);
  }
  template <std::size_t Rank>
  static status& expected(status& text, const shape<Rank>& want) noexcept {
    text << ", expected [";
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      text << (axis == 0 ? "" : ", ");
      if (want[axis] == -1) {
        text << "any";
      } else {
        text << want[axis];
      }
    }
    return text << "] = ";
  }
  /// A pool of states has these extents, and, without a list of slots, as many slots as there are sequences. `other` is
  /// the name of the other pool where both are one.
  template <class S, std::size_t Rank>
  void pool(const char* name, const char* other, const view<S, Rank>& x, const char* slots_name,
            const view<const std::int32_t, 1>& list, index_t sequences, shape<Rank> want,
            const char* letters) noexcept {
    want[0] = -1;
    const bool slots_fit = list.present() || x.extent(0) == sequences;
    if (!*this || !x.present() || (slots_fit && fits(x, want))) return;
    const bool only_slots = fits(x, want);
    if (!list.present()) want[0] = sequences;
    refuse(name);
    if (other != nullptr) result_ << "(and " << other << ", the same pool) ";
    expected(result_ << "has shape " << std::span<const index_t>(x.extents()), want) << letters;
    if (!only_slots) return;
    result_ << "; a pool that has not one slot per sequence wants " << slots_name;
    if (other != nullptr) result_ << " and final_slots";
    result_ << ", one entry per sequence";
  }
  void shared_slot(const char* slots_name, const char* field, index_t slot, const char* other,
                   const char* list) noexcept {
    refuse(slots_name) << "names slot " << slot << " of " << field << ", which ";
    if (list != nullptr) {
      result_ << list << " names in the same pool";
    } else {
      result_ << other << ", the same pool, uses for sequence " << slot;
    }
    result_ << "; give each state a slot of its own";
  }
  /// f(slot) for all of a list; an absent one names all slots there are.
  template <std::size_t Rank, class F>
  static void for_slots(const view<const std::int32_t, Rank>& list, index_t held, const F& f) noexcept {
    if constexpr (Rank == 2) {
      for (index_t i = 0; i < list.extent(0); ++i) for_slots(list[i], held, f);
    } else {
      for (index_t i = 0; i < (list.present() ? list.extent(0) : held); ++i) f(slot_of(list, i));
    }
  }
  void slots(const char* field, const view<const std::int32_t, 1>& list, index_t sequences, index_t held) noexcept {
    if (!*this || !list.present()) return;
    if (list.extent(0) != sequences) {
      refuse(field) << "has " << list.extent(0) << " entries for " << sequences << " sequences";
    }
    for (index_t i = 0; *this && i < sequences; ++i) {
      const index_t slot = list[i];
      if (slot < -1 || (held >= 0 && slot >= held)) {
        refuse(field) << "entry " << i << " is " << slot << ", must be −1 or below " << std::max<index_t>(held, 0);
      }
    }
  }

  const char* op_;
  status result_;
};

}  // namespace ogive::core
