// What the program is doing, on standard error: one line that changes on a terminal, else a line per stage.
#pragma once

#include <string>

namespace ogive::crossover {

class progress {
 public:
  explicit progress(bool quiet);
  ~progress() { clear(); }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// How much `step` will add up to.
  void expect(double total) noexcept { total_ = total; }
  /// Now at `detail` of `stage`; `share` of the total is done when the next step comes.
  void step(const std::string& stage, const std::string& detail, double share);
  /// Takes the line away, before something is printed.
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
  double total_ = 1;
  double done_ = 0;
  double share_ = 0;
  std::string stage_;
};

}  // namespace ogive::crossover
