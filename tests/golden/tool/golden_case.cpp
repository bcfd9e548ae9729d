#include "tests/golden/tool/golden_case.hpp"

#include <limits>
#include <sstream>

namespace ogive::golden {

namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream in(list);
  for (std::string name; std::getline(in, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

/// A JSON number, or "inf" or "-inf", which JSON cannot say.
std::optional<double> number_in(const nlohmann::json& given) {
  if (given.is_number()) return given.get<double>();
  if (given == "inf") return std::numeric_limits<double>::infinity();
  if (given == "-inf") return -std::numeric_limits<double>::infinity();
  return {};
}

}  // namespace

golden_case::golden_case(const std::filesystem::path& path) : file_(path) {
  options_ = json("options");
  scales_ = json("abs_scale");
  // "n/a" where the plain formula was not run in float.
  hints_ = nlohmann::json::parse(entry("f32_rel_err_hint"), nullptr, false);
  for (const std::string& name : split(entry("complex_as_re_im_last_dim"))) complex_.insert(name);
  inputs_ = split(entry("inputs"));
  outputs_ = split(entry("outputs"));
  gradients_ = split(entry("gradients"));
  for (const std::string& name : outputs_) {
    if (!has(name)) file_.fail("is named as an output but not stored", name);
  }
  for (const std::string& name : gradients_) {
    if (!has(name)) file_.fail("is named as a gradient but not stored", name);
  }
  const std::string rule = entry("compare");
  if (rule == "elementwise_rel") {
    rule_ = testing::rule::elementwise_rel;
  } else if (rule == "per_leading_index") {
    rule_ = testing::rule::per_leading_index;
  } else if (!rule.empty() && rule != "max_norm") {
    file_.fail("asks for the unknown comparison '" + rule + "'");
  }
}

std::string golden_case::entry(const std::string& key) const {
  const auto found = file_.metadata().find(key);
  return found == file_.metadata().end() ? std::string() : found->second;
}

nlohmann::json golden_case::json(const std::string& key) const {
  const std::string text = entry(key);
  if (text.empty()) return nlohmann::json::object();
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object()) file_.fail("has metadata '" + key + "' that is not a JSON object: " + text);
  return parsed;
}

const nlohmann::json& golden_case::option(const std::string& name) const {
  static const nlohmann::json none;
  const auto found = options_.find(name);
  return found == options_.end() ? none : *found;
}

void golden_case::refuse(const std::string& name, const char* wish) const {
  file_.fail("has the option '" + name + "' = " + option(name).dump() + ", not " + wish);
}

std::optional<double> golden_case::number(const std::string& name) const {
  const nlohmann::json& given = option(name);
  if (given.is_null()) return {};
  const auto number = number_in(given);
  if (!number) refuse(name, "a number");
  return number;
}

std::pair<double, double> golden_case::interval(const std::string& name, std::pair<double, double> otherwise) const {
  const nlohmann::json& given = option(name);
  if (given.is_null()) return otherwise;
  if (!given.is_array() || given.size() != 2 || !number_in(given[0]) || !number_in(given[1])) {
    refuse(name, "a pair of numbers");
  }
  return {*number_in(given[0]), *number_in(given[1])};
}

std::optional<index_t> golden_case::integer(const std::string& name) const {
  const nlohmann::json& given = option(name);
  if (given.is_null()) return {};
  if (!given.is_number_integer()) refuse(name, "an integer");
  return given.get<index_t>();
}

bool golden_case::flag(const std::string& name, bool otherwise) const {
  const nlohmann::json& given = option(name);
  if (given.is_null()) return otherwise;
  if (!given.is_boolean()) refuse(name, "true or false");
  return given.get<bool>();
}

std::string golden_case::text(const std::string& name, const std::string& otherwise) const {
  const nlohmann::json& given = option(name);
  if (given.is_null()) return otherwise;
  if (!given.is_string()) refuse(name, "a text");
  return given.get<std::string>();
}

double golden_case::hint(const std::string& output) const {
  const auto found = hints_.is_object() ? hints_.find(output) : hints_.end();
  return found != hints_.end() && found->is_number() ? found->get<double>() : 0;
}

testing::measure golden_case::measure_of(const std::string& output) const {
  testing::measure how{.rule = rule_, .scale = -1, .block = 0, .complex = is_complex(output)};
  const auto given = scales_.find(output);
  if (given != scales_.end() && given->is_number()) how.scale = given->get<double>();
  const std::vector<index_t>& axes = shape(output);
  how.block = 1;
  for (std::size_t axis = 1; axis < axes.size(); ++axis) how.block *= axes[axis];
  return how;
}

std::vector<std::string> golden_case::unused_inputs() const {
  std::vector<std::string> names;
  for (const std::string& name : inputs_) {
    if (has(name) && !used_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace ogive::golden
