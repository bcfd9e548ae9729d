// L1: 16-bit storage types. They hold numbers; all arithmetic happens in accum_t.
#pragma once

#include <ogive/config.hpp>

#include <bit>
#include <concepts>

namespace ogive {

namespace core {

constexpr std::uint16_t bfloat16_bits(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr std::uint16_t float16_bits(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {  // below 2^-14: the unit is 2^-24
    if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t shift = 126U - exponent;
    const std::uint32_t kept = mantissa >> shift;
    const std::uint32_t dropped = mantissa & ((1U << shift) - 1U);
    const std::uint32_t halfway = 1U << (shift - 1U);
    const std::uint32_t up = (dropped > halfway || (dropped == halfway && (kept & 1U))) ? 1U : 0U;
    return static_cast<std::uint16_t>(sign | (kept + up));
  }
  const std::uint32_t rebased = magnitude - 0x38000000U;
  return static_cast<std::uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13));
}

constexpr float float16_value(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

template <class T>
concept number = std::integral<T> || std::floating_point<T>;

}  // namespace core

/// bfloat16: the upper half of an IEEE float. Conversion rounds to nearest, ties to even.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  constexpr explicit bfloat16(core::number auto x) noexcept : bits(core::bfloat16_bits(static_cast<float>(x))) {}
  constexpr operator float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE binary16. Conversion rounds to nearest, ties to even; beyond 65504 it is infinite.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  constexpr explicit float16(core::number auto x) noexcept : bits(core::float16_bits(static_cast<float>(x))) {}
  constexpr operator float() const noexcept { return core::float16_value(bits); }
};

}  // namespace ogive
