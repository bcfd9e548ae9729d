#include "tests/golden/tool/trial.hpp"

#include <algorithm>

namespace ogive::golden {

namespace {

std::map<std::string, runner>& table() {
  static std::map<std::string, runner> all;
  return all;
}

/// How far a comparison is from its bound: 1 is on it.
double severity(const testing::comparison& result) { return result.error == 0 ? 0 : result.error / result.bound; }

}  // namespace

registration::registration(const std::string& op, runner run) { table()[op] = run; }

const std::map<std::string, runner>& runners() { return table(); }

void trial::add(const std::string& form, const std::string& type, const std::string& variant, const std::string& output,
                const testing::comparison& result) {
  covered_.insert(output);
  auto line = std::ranges::find_if(findings_, [&](const finding& f) { return f.form == form && f.type == type; });
  if (line == findings_.end()) {
    findings_.push_back({form, type, output, variant, result, 0, true});
    line = findings_.end() - 1;
  }
  ++line->runs;
  line->ok = line->ok && result.ok;
  if (severity(result) > severity(line->result)) {
    line->output = output;
    line->variant = variant;
    line->result = result;
  }
}

std::string trial::overlooked() const {
  std::string words;
  for (const std::string& output : file.outputs()) {
    if (!covered_.contains(output)) words += (words.empty() ? "" : "; ") + ("output '" + output + "' was not compared");
  }
  for (const std::string& d : file.gradients()) {
    if (!covered_.contains(d)) words += (words.empty() ? "" : "; ") + ("gradient '" + d + "' was not compared");
  }
  for (const std::string& input : file.unused_inputs()) {
    words += (words.empty() ? "" : "; ") + ("input '" + input + "' is not understood");
  }
  if (words.empty() && findings_.empty()) words = "nothing in it was compared";
  return words;
}

}  // namespace ogive::golden
