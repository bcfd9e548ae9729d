#include <bench/crossover/settings.hpp>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

namespace ogive::crossover {

const char* const help_text =
    R"(Where linear attention overtakes softmax attention, counted and timed.

  ogive_crossover [options]

Unnormalised attention without softmax is a product of three matrices, and there are two ways to
multiply it: from the left, (Q K^T) V, in O(n^2 d); or from the right, Q (K^T V), in O(n d^2).
Counted in operations they cross at n = d, under a causal mask at n = 2d - 1. This program counts,
times the real kernels and softmax attention beside them, and writes numbers and a picture.

  --input FILE   q, k and v from a safetensors file: tensors of these names, [B, L, H, D] or
                 [L, D], in F32, F64, F16 or BF16; say the activations of a model. Tokens of all
                 sequences follow each other, their channels are cut anew into heads of d, and
                 both start over where more are needed.
  --seed N       without a file: the seed of the generator (default 1)
  --threads N    how many threads work, one head each (default 1)
  --out DIR      where crossover.csv, .json, .md, .svg and .png go, and forms.csv, .svg and .png,
                 which hold a time-invariant system as a recurrence and as a convolution
                 (default build/crossover)
  --short        a quick look: n up to 16 d, fewer repetitions. OGIVE_CROSSOVER_SHORT=1 in the
                 environment does the same.
  --quiet        no progress on standard error
  --help         this text

Left and right product are compared on the very input before anything is timed; kernels that
disagree are not timed. The exit code is 0, after a failure 1, after a wrong command line 2.
)";

namespace {

template <class Number>
Number number(std::string_view option, std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw usage_error(std::string(option) + " wants a number from " + std::to_string(least) + " to " +
                      std::to_string(most) + ", not '" + std::string(text) + "'");
  }
  return value;
}

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace

settings parse(int count, const char* const* arguments) {
  settings chosen;
  chosen.brief = set_in_environment("OGIVE_CROSSOVER_SHORT");
  for (int i = 1; i < count; ++i) {
    // Both `--seed 7` and `--seed=7`.
    std::string_view option = arguments[i];
    std::optional<std::string_view> joined;
    if (const auto equals = option.find('='); option.starts_with("--") && equals != option.npos) {
      joined = option.substr(equals + 1);
      option = option.substr(0, equals);
    }
    const auto value = [&]() -> std::string_view {
      if (joined) return *joined;
      if (++i == count) throw usage_error(std::string(option) + " wants a value");
      return arguments[i];
    };
    if (option == "--input") {
      chosen.input = value();
    } else if (option == "--out") {
      chosen.out = value();
    } else if (option == "--seed") {
      chosen.seed = number<std::uint64_t>(option, value(), 0, std::numeric_limits<std::uint64_t>::max());
    } else if (option == "--threads") {
      chosen.threads = number(option, value(), 1, 1024);
    } else if (joined) {
      throw usage_error("there is no option " + std::string(option) + " with a value");
    } else if (option == "--short") {
      chosen.brief = true;
    } else if (option == "--quiet") {
      chosen.quiet = true;
    } else if (option == "--help" || option == "-h") {
      chosen.help = true;
    } else {
      throw usage_error("there is no option " + std::string(option));
    }
  }
  return chosen;
}

}  // namespace ogive::crossover
