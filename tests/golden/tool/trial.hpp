// One file on trial: what every form of its operator gave, held against what it must give.
#pragma once

#include <iosfwd>
#include <map>

#include "tests/golden/tool/golden_case.hpp"

namespace ogive::golden {

/// A line of the table: the worst that a form did in one type. `error` is in the units of the file's rule.
struct finding {
  std::string form, type;
  std::string output;          ///< the one it did worst on
  std::string variant;         ///< in which of its runs (chunk, layout of the state)
  testing::comparison result;  ///< there
  index_t runs = 0;            ///< how many comparisons stand behind it
  bool ok = true;
};

/// Numbers that a run gave for an output of the file, in the file's order.
struct named_numbers {
  std::string output;
  std::vector<double> numbers;
};

class trial {
 public:
  explicit trial(const golden_case& the_file) : file(the_file) {}

  const golden_case& file;

  /// What the outputs must be in T. In double and float the file says; for 16-bit types whoever rounded the arguments.
  template <class T>
  void expect(const std::string& output, target wanted) {
    targets_[type_name<T>()][output] = std::move(wanted);
  }
  template <class T>
  const target& expected(const std::string& output) {
    auto& targets = targets_[type_name<T>()];
    const auto found = targets.find(output);
    if (found != targets.end()) return found->second;
    return targets.emplace(output, file.expected<T>(output)).first->second;
  }

  /// Holds what a form gave in T against that. An output that the file does not have is passed over.
  template <class T>
  void check(const std::string& form, const std::string& variant, const named_numbers& got) {
    if (!file.has(got.output)) return;
    const target& wanted = expected<T>(got.output);
    add(form, type_name<T>(), variant, got.output,
        testing::compare(got.numbers, wanted.numbers, wanted.bound, wanted.how));
  }
  template <class T>
  void check(const std::string& form, const std::string& variant, const std::vector<named_numbers>& all) {
    for (const named_numbers& got : all) check<T>(form, variant, got);
  }

  /// A comparison under a rule of one's own.
  void add(const std::string& form, const std::string& type, const std::string& variant, const std::string& output,
           const testing::comparison& result);
  /// An output that belongs to an operator of another kind and is not looked at.
  void pass_over(const std::string& output) { covered_.insert(output); }

  const std::vector<finding>& findings() const noexcept { return findings_; }
  /// What the file holds and nobody has looked at, in words; empty if nothing.
  std::string overlooked() const;

 private:
  std::vector<finding> findings_;
  std::set<std::string> covered_;
  std::map<std::string, std::map<std::string, target>> targets_;
};

/// Runs every form of an operator on a file. Throws where the file does not make sense.
using runner = void (*)(trial&);

/// The operators the program knows. A family of them adds itself by a constant:
///
///     const registration here("linattn_causal", run_causal);
struct registration {
  registration(const std::string& op, runner run);
};
const std::map<std::string, runner>& runners();

}  // namespace ogive::golden
