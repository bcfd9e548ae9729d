// ogive_golden FILE-OR-FOLDER...: golden vectors against every form of their operator.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iomanip>
#include <iostream>

#include "tests/golden/tool/trial.hpp"

namespace {

using namespace ogive::golden;
namespace fs = std::filesystem;

constexpr const char* help = R"(Usage: ogive_golden [OPTION]... PATH...

Runs every form of an operator on golden vectors and holds the results against the vectors' own comparison rule.

PATH is a file, or a folder that is searched for *.safetensors, subfolders included. A file names its operator, its
options and its comparison in its metadata; all shapes are read from its tensors.

What runs on a file: the definition in double; every form of the operator (step in one call and token by token,
recurrent, chunked in chunks of several sizes, forward; left and right product where there is no time) in double and
float, with K-first and V-first states; and in bfloat16 and float16. Feature maps and discretisations run in double and
float. Gradients (tensors d_* and grad_*) are looked at where an operator has a backward pass: in double and float, in
chunks of several sizes, with K-first and V-first states, and added to themselves.

Bounds. double: 1e-10 of the largest number of an output (1e-12 of each element where the file asks for elementwise
comparison). float: 50 times the error that the file states for the plain formula in float, at least 1e-5. Gradients
alike. 16-bit types: the definition on the rounded arguments, the float bound around it and the rounding of the result
on top.

One line for each file and form: for each type the largest error of all its runs, in the units of the file's rule, and
its bound. A file passes if all its lines do. A file of an unknown operator fails and is listed apart, and so does a file
that cannot be read or does not fit its operator.

Options:
  -h, --help        print this and exit
      --list        print the operators that are known and exit
  -k, --known-only  skip files of unknown operators
  -v, --verbose     also say in which run, on which output and where the largest error is
  -q, --quiet       print failures and the last line only

The last line is "N passed, N failed", counted in files. Exit status: 0 if nothing failed, 1 if something did, 2 for a
wrong call.
)";

struct settings {
  bool known_only = false;
  bool verbose = false;
  bool quiet = false;
  std::vector<std::string> paths;
};

/// A file and what is wrong with it.
struct complaint {
  std::string file, words;
};

/// What became of the files.
struct summary {
  int passed = 0;
  std::vector<complaint> wrong, unreadable, unknown;

  int failed() const { return static_cast<int>(wrong.size() + unreadable.size() + unknown.size()); }
};

/// Where the largest error of a finding is.
std::string words_of(const finding& worst) {
  const auto& r = worst.result;
  std::ostringstream out;
  out << std::setprecision(9) << worst.type << ", the worst of " << worst.runs << " comparisons: " << worst.output;
  if (!worst.variant.empty()) out << ", " << worst.variant;
  if (r.position >= 0) out << ", number " << r.position << " is " << r.got << ", not " << r.expected;
  return out.str();
}

constexpr std::array types{"double", "float", "bfloat16", "float16"};

void print_head() {
  std::printf("%-38s %-14s", "file", "form");
  for (const char* type : types) std::printf(" %-15s", type);
  std::printf("\n%-38s %-14s", "", "");
  for (std::size_t i = 0; i < types.size(); ++i) std::printf(" %-15s", "error/bound");
  std::printf("\n");
}

/// One line for each form, with the types side by side.
void print(const std::string& file, const std::vector<finding>& findings, const settings& how) {
  std::vector<std::string> forms;
  for (const finding& f : findings) {
    if (std::ranges::find(forms, f.form) == forms.end()) forms.push_back(f.form);
  }
  for (const std::string& form : forms) {
    std::vector<const finding*> line;
    for (const char* type : types) {
      const auto found =
          std::ranges::find_if(findings, [&](const auto& f) { return f.form == form && f.type == type; });
      line.push_back(found == findings.end() ? nullptr : &*found);
    }
    const bool ok = std::ranges::all_of(line, [](const finding* f) { return f == nullptr || f->ok; });
    if (how.quiet && ok) continue;
    std::printf("%-38s %-14s", file.c_str(), form.c_str());
    for (const finding* f : line) {
      char cell[32] = "-";
      if (f != nullptr) std::snprintf(cell, sizeof cell, "%.1e/%.1e", f->result.error, f->result.bound);
      std::printf(" %-15s", cell);
    }
    std::printf(" %s\n", ok ? "ok" : "FAIL");
    for (const finding* f : line) {
      if (f != nullptr && (how.verbose || !f->ok)) std::printf("%38s %s\n", "", words_of(*f).c_str());
    }
  }
}

void run(const fs::path& path, const settings& how, summary& all) {
  const std::string name = path.stem().string();
  try {
    const golden_case file(path);
    if (file.op().empty()) throw std::runtime_error("its metadata names no operator");
    const auto known = runners().find(file.op());
    if (known == runners().end()) {
      if (!how.known_only) all.unknown.push_back({name, "operator " + file.op()});
      return;
    }
    trial t(file);
    known->second(t);
    std::string faults;
    print(name, t.findings(), how);
    for (const finding& line : t.findings()) {
      if (!line.ok) faults += (faults.empty() ? "" : ", ") + line.form + " in " + line.type;
    }
    const std::string overlooked = t.overlooked();
    if (!overlooked.empty()) faults += (faults.empty() ? "" : "; ") + overlooked;
    if (faults.empty()) {
      ++all.passed;
    } else {
      all.wrong.push_back({name, faults});
    }
  } catch (const std::exception& fault) {
    all.unreadable.push_back({name, fault.what()});
  }
}

/// The files that a path stands for, in order.
std::vector<fs::path> files_of(const std::string& path, summary& all) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return {path};
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  }
  if (failed) {
    all.unreadable.push_back({path, failed.message()});
  } else if (files.empty()) {
    all.unreadable.push_back({path, "holds no .safetensors file"});
  }
  std::ranges::sort(files);
  return files;
}

void print(const char* title, const std::vector<complaint>& list) {
  if (list.empty()) return;
  std::printf("\n%s:\n", title);
  for (const complaint& c : list) std::printf("  %s: %s\n", c.file.c_str(), c.words.c_str());
}

/// \throws std::invalid_argument
settings parse(int argc, char** argv) {
  settings how;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!options || word.empty() || word[0] != '-') {
      how.paths.push_back(word);
    } else if (word == "--") {
      options = false;
    } else if (word == "-k" || word == "--known-only") {
      how.known_only = true;
    } else if (word == "-v" || word == "--verbose") {
      how.verbose = true;
    } else if (word == "-q" || word == "--quiet") {
      how.quiet = true;
    } else if (word == "-h" || word == "--help") {
      std::fputs(help, stdout);
      std::exit(0);
    } else if (word == "--list") {
      for (const auto& [op, run] : runners()) std::puts(op.c_str());
      std::exit(0);
    } else {
      throw std::invalid_argument("unknown option " + word);
    }
  }
  if (how.paths.empty()) throw std::invalid_argument("no file or folder given");
  return how;
}

}  // namespace

int main(int argc, char** argv) {
  settings how;
  try {
    how = parse(argc, argv);
  } catch (const std::invalid_argument& fault) {
    std::cerr << "ogive_golden: " << fault.what() << " (--help says how to call it)\n";
    return 2;
  }
  summary all;
  if (!how.quiet) print_head();
  for (const std::string& path : how.paths) {
    for (const fs::path& file : files_of(path, all)) run(file, how, all);
  }
  print("Wrong", all.wrong);
  print("Not readable, or not fitting the operator", all.unreadable);
  print("Unknown operators", all.unknown);
  std::printf("%s%d passed, %d failed\n", how.quiet && all.failed() == 0 ? "" : "\n", all.passed, all.failed());
  return all.failed() == 0 ? 0 : 1;
}
