// What the user asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>

namespace ogive::crossover {

struct settings {
  std::filesystem::path out = "build/crossover";
  std::optional<std::filesystem::path> input{};
  std::uint64_t seed = 1;
  int threads = 1;
  bool brief = false;  ///< a quick look: fewer tokens, fewer repetitions
  bool quiet = false;  ///< no progress
  bool help = false;
};

/// A command line that cannot be understood.
struct usage_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// From the command line and OGIVE_CROSSOVER_SHORT. \throws usage_error
settings parse(int count, const char* const* arguments);

extern const char* const help_text;

}  // namespace ogive::crossover
