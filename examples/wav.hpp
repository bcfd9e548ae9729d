// WAV files for the examples: 16-bit PCM and 32-bit float in, 32-bit float out. What is wrong with a file is said in a
// std::runtime_error, and a file that could not be written whole is not there.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace wav {

/// Samples in [−1, 1], channels interleaved.
struct sound {
  std::uint32_t rate = 48000;
  std::uint16_t channels = 1;
  std::vector<float> samples{};
};

using bytes = std::span<const unsigned char>;

/// Numbers are little-endian, at any address.
inline std::uint32_t number(bytes from, std::size_t at, std::size_t size) {
  std::uint32_t x = 0;
  for (std::size_t i = 0; i < size; ++i) x |= std::uint32_t{from[at + i]} << (8 * i);
  return x;
}
inline std::string_view name(bytes from, std::size_t at) {
  return {reinterpret_cast<const char*>(from.data()) + at, 4};
}

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

/// What the chunk `fmt ` says of the samples.
struct format {
  static constexpr std::uint32_t pcm = 1, ieee_float = 3, extensible = 0xFFFE;
  std::uint32_t tag = 0, channels = 0, rate = 0, frame = 0, bits = 0;

  static format parse(bytes chunk) {
    if (chunk.size() < 16) fail("malformed: the format chunk has " + std::to_string(chunk.size()) + " bytes, not 16");
    format f{number(chunk, 0, 2), number(chunk, 2, 2), number(chunk, 4, 4), number(chunk, 12, 2), number(chunk, 14, 2)};
    if (f.tag == extensible) {
      if (chunk.size() < 40) fail("malformed: the extensible format chunk is shorter than 40 bytes");
      f.tag = number(chunk, 24, 2);
    }
    if (!(f.tag == pcm && f.bits == 16) && !(f.tag == ieee_float && f.bits == 32)) {
      fail("unsupported: format " + std::to_string(f.tag) + " of " + std::to_string(f.bits) +
           " bits; 16-bit PCM and 32-bit float are read");
    }
    if (f.channels == 0 || f.rate == 0) fail("malformed: no channels, or a rate of 0");
    if (f.frame != f.channels * f.bits / 8) fail("malformed: the size of a frame is not that of its samples");
    return f;
  }
};

inline sound decode(bytes file) {
  if (file.size() < 12 || name(file, 0) != "RIFF" || name(file, 8) != "WAVE") fail("not a WAV file");
  format form;
  for (std::size_t at = 12;;) {
    if (at + 8 > file.size()) fail("truncated: the file ends before its samples");
    const std::string_view chunk = name(file, at);
    const std::size_t size = number(file, at + 4, 4);
    at += 8;
    if (size > file.size() - at) {
      fail("truncated: chunk '" + std::string(chunk) + "' has " + std::to_string(size) + " bytes, the file " +
           std::to_string(file.size() - at) + " more");
    }
    const bytes inside = file.subspan(at, size);
    if (chunk == "fmt ") form = format::parse(inside);
    if (chunk == "data") {
      if (form.rate == 0) fail("malformed: samples come before their format");
      if (size % form.frame != 0) fail("malformed: the last frame is not whole");
      sound s{form.rate, static_cast<std::uint16_t>(form.channels), std::vector<float>(size / (form.bits / 8))};
      for (std::size_t i = 0; i < s.samples.size(); ++i) {
        s.samples[i] = form.bits == 16
                           ? static_cast<float>(static_cast<std::int16_t>(number(inside, 2 * i, 2))) / 32768.0F
                           : std::bit_cast<float>(number(inside, 4 * i, 4));
        if (!std::isfinite(s.samples[i])) fail("malformed: sample " + std::to_string(i) + " is not a number");
      }
      return s;
    }
    at += size + size % 2;
  }
}

inline std::vector<unsigned char> encode(const sound& s) {
  const std::size_t size = 4 * s.samples.size();
  if (size > std::numeric_limits<std::uint32_t>::max() - 64) fail("too long for a WAV file");
  std::vector<unsigned char> file;
  file.reserve(size + 58);
  const auto put = [&](std::size_t x, std::size_t count) {
    for (; count > 0; --count, x >>= 8) file.push_back(static_cast<unsigned char>(x & 0xFF));
  };
  const auto word = [&](std::string_view letters) { file.insert(file.end(), letters.begin(), letters.end()); };
  word("RIFF"), put(size + 50, 4), word("WAVE");
  word("fmt "), put(18, 4), put(format::ieee_float, 2), put(s.channels, 2), put(s.rate, 4);
  put(std::size_t{s.rate} * s.channels * 4, 4), put(std::size_t{s.channels} * 4, 2), put(32, 2), put(0, 2);
  word("fact"), put(4, 4), put(s.samples.size() / s.channels, 4);
  word("data"), put(size, 4);
  for (const float x : s.samples) put(std::bit_cast<std::uint32_t>(x), 4);
  return file;
}

inline sound read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path + ": cannot be opened");
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  try {
    return decode({reinterpret_cast<const unsigned char*>(file.data()), file.size()});
  } catch (const std::runtime_error& wrong) {
    fail(path + ": " + wrong.what());
  }
}

/// Into a file beside it first, which takes its name when it is whole.
inline void write(const std::string& path, const sound& s) {
  const std::vector<unsigned char> file = encode(s);
  const std::string part = path + ".part";
  std::ofstream out(part, std::ios::binary);
  out.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  out.close();
  std::error_code failed;
  if (out) std::filesystem::rename(part, path, failed);
  if (!out || failed) {
    std::filesystem::remove(part, failed);
    fail(path + ": cannot be written");
  }
}

}  // namespace wav
