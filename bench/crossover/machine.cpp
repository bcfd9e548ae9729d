#include <bench/crossover/measures.hpp>
#include <bench/limits.hpp>
#include <cstdlib>
#include <fstream>
#include <thread>

// The build says with which flags it compiles.
#if !defined(OGIVE_CROSSOVER_FLAGS)
#define OGIVE_CROSSOVER_FLAGS "flags unknown"
#endif
#define OGIVE_CROSSOVER_TEXT1(x) #x
#define OGIVE_CROSSOVER_TEXT(x) OGIVE_CROSSOVER_TEXT1(x)

namespace ogive::crossover {

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto begin = line.find_first_not_of(" \t:", sizeof("model name") - 1);
    if (begin != line.npos) return line.substr(begin);
  }
  return "unknown processor";
}

std::string compiler() {
#if defined(__clang__)
  return "clang++ " OGIVE_CROSSOVER_TEXT(__clang_major__) "." OGIVE_CROSSOVER_TEXT(__clang_minor__) "."  //
      OGIVE_CROSSOVER_TEXT(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "g++ " OGIVE_CROSSOVER_TEXT(__GNUC__) "." OGIVE_CROSSOVER_TEXT(__GNUC_MINOR__) "."  //
      OGIVE_CROSSOVER_TEXT(__GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

}  // namespace

machine describe_machine() {
  const char* commit = std::getenv("OGIVE_COMMIT");
  return {.cpu = cpu_model(),
          .cores = std::thread::hardware_concurrency(),
          .isa = OGIVE_CROSSOVER_TEXT(OGIVE_ABI_ISA),
          .compiler = compiler(),
          .flags = OGIVE_CROSSOVER_FLAGS,
          .commit = commit != nullptr && *commit != '\0' ? commit : "unknown",
          .fma_peak = bench::fma_peak<float>()};
}

}  // namespace ogive::crossover
