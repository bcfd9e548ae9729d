#include <algorithm>
#include <bench/crossover/report.hpp>
#include <bench/crossover/table.hpp>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

// The build says where the scripts lie.
#if !defined(OGIVE_CROSSOVER_SCRIPTS)
#define OGIVE_CROSSOVER_SCRIPTS "bench/crossover"
#endif

namespace ogive::crossover {

namespace {

constexpr char crossover_title[] = "Where linear attention overtakes softmax attention";
constexpr char forms_title[] = "A system that does not change: recurrence against convolution";

/// A gnuplot string in single quotes, where nothing but these is special.
std::string quoted(const std::string& s) {
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? "''" : std::string(1, c);
  return q + '\'';
}

std::string for_shell(const std::string& s) {
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? "'\\''" : std::string(1, c);
  return q + '\'';
}

template <class Value>
std::string array(const std::string& name, const results& r, const Value& value) {
  std::string line = text("array %s[%zu] = [", name.c_str(), r.curves.size());
  for (std::size_t i = 0; i < r.curves.size(); ++i) line += (i == 0 ? "" : ", ") + value(r.curves[i]);
  return line + "]\n";
}

/// What the script knows of where the right product overtakes another kernel: where in a panel, and in words.
std::string marks(const char* name, const results& r, double point::*first) {
  const auto overtaken = [first](const curve& c) { return c.timed(first, &point::right); };
  const auto number = [](const crossing& x, double value) {
    return x.at == crossing::where::inside ? text("%.5g", value) : "NaN";
  };
  const std::string prefix = name;
  return array(prefix + "_at", r,
               [&](const curve& c) {
                 const crossing x = overtaken(c);
                 return number(x, x.n / static_cast<double>(c.d));
               }) +
         array(prefix + "_height", r,
               [&](const curve& c) {
                 const crossing x = overtaken(c);
                 return number(x, 1e6 * x.seconds / x.n);
               }) +
         array(prefix + "_label", r, [&](const curve& c) {
           const crossing x = overtaken(c);
           const double ratio = x.n / static_cast<double>(c.d);
           if (x.at == crossing::where::below) return quoted(text("n* < d/%.0f", 1 / ratio));
           if (x.at == crossing::where::above) return quoted(text("n* > %.0f d", ratio));
           return quoted(text("n* = %.2f d", ratio));
         });
}

/// The range of all n/d and, with some air, of all times per token.
std::string ranges(const results& r) {
  double low = std::numeric_limits<double>::infinity(), high = 0, most = 0;
  for (const curve& c : r.curves) {
    for (const point& p : c.points) {
      most = std::max(most, static_cast<double>(p.n) / static_cast<double>(c.d));
      for (const double seconds : {p.left, p.right, p.softmax}) {
        low = std::min(low, 1e6 * seconds / static_cast<double>(p.n));
        high = std::max(high, 1e6 * seconds / static_cast<double>(p.n));
      }
    }
  }
  return text("most = %g\nlow = %.3g\nhigh = %.3g\n", most, low / 2.5, high * 1.5);
}

/// The name of the document, which a reader for the blind says first and gnuplot leaves to be its own.
void entitle(const std::filesystem::path& svg, const char* title) {
  std::ostringstream drawn;
  drawn << std::ifstream(svg).rdbuf();
  std::string document = drawn.str();
  const std::string own = "<title>Gnuplot</title>";
  if (const auto at = document.find(own); at != std::string::npos) {
    document.replace(at, own.size(), text("<title>%s</title>", title));
    std::ofstream(svg) << document;
  }
}

std::string caption_of(const results& r, const settings& how) {
  const machine& m = r.machine;
  return m.cpu + ", " + std::to_string(how.threads) + (how.threads == 1 ? " thread" : " threads") +
         text(", float32, %.0f GFLOP/s at most per thread; ", 1e-9 * m.fma_peak) + m.compiler + ' ' + m.flags +
         "; commit " + m.commit;
}

/// What a script begins with.
std::string head(const std::string& name, const char* title, const std::string& caption) {
  return "# gnuplot " + name + ".gp draws the picture anew.\ntitle = " + quoted(title) +
         "\ncaption = " + quoted(caption) + '\n';
}

std::string crossover_script(const results& r, const settings& how) {
  return head("crossover", crossover_title, caption_of(r, how) + "; q, k, v: " + r.input) + "data = 'crossover.csv'\n" +
         array("dims", r, [](const curve& c) { return std::to_string(c.d); }) +
         array("causal", r, [](const curve& c) { return std::string(c.causal ? "1" : "0"); }) +
         array("counted", r, [](const curve& c) { return std::to_string(c.counted.crossing); }) +
         marks("left", r, &point::left) + marks("softmax", r, &point::softmax) + ranges(r);
}

std::string forms_script(const results& r, const settings& how) {
  const forms_table& f = r.forms;
  std::string lines = head("forms", forms_title, caption_of(r, how));
  lines += "system = " +
           quoted(text("S4D, %td channels of %td complex modes each, zero-order hold; the input is noise", f.channels,
                       f.modes)) +
           text("\nchannels = %td\nleast = %td\nmost = %td\n", f.channels, f.rows.front().n, f.rows.back().n);
  const auto each = [&](double seconds, double n) { return 1e9 * seconds / n / static_cast<double>(f.channels); };
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const forms_row& row : f.rows) {
    for (const double seconds : {row.recurrent, row.direct, row.made, row.kept}) {
      low = std::min(low, each(seconds, static_cast<double>(row.n)));
      high = std::max(high, each(seconds, static_cast<double>(row.n)));
    }
  }
  lines += text("low = %.3g\nhigh = %.3g\n", low / 1.5, high * 1.3);
  const forms_row& last = f.rows.back();
  const auto end = [&](const char* name, double seconds) {
    lines += text("%s_end = %.4g\n", name, each(seconds, static_cast<double>(last.n)));
  };
  end("recurrent", last.recurrent), end("direct", last.direct), end("made", last.made), end("kept", last.kept);
  const auto mark = [&](const char* name, double forms_row::*first, double forms_row::*second) {
    const crossing x = f.timed(first, second);
    const bool inside = x.at == crossing::where::inside;
    lines += text("%s_at = %s\n", name, inside ? text("%.5g", x.n).c_str() : "NaN") +
             text("%s_height = %s\n", name, inside ? text("%.5g", each(x.seconds, x.n)).c_str() : "NaN");
  };
  mark("direct", &forms_row::direct, &forms_row::kept);
  mark("recurrent", &forms_row::recurrent, &forms_row::kept);
  return lines;
}

/// Writes a script for the one of this name that lies with the sources, and runs it.
std::string draw(const std::string& name, const char* title, const std::string& script, const settings& how) {
  const auto path = how.out / (name + ".gp");
  std::ofstream file(path);
  const auto drawn_by = std::filesystem::absolute(OGIVE_CROSSOVER_SCRIPTS) / path.filename();
  file << script << "load " << quoted(drawn_by.string()) << '\n';
  if (!file.flush()) throw std::runtime_error(path.string() + " cannot be written");
  file.close();
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) return "there is no gnuplot (Debian: gnuplot-nox)";
  const std::string command = "cd " + for_shell(how.out.string()) + " && gnuplot " + name + ".gp";
  if (std::system(command.c_str()) != 0) return "gnuplot failed";
  entitle(how.out / (name + ".svg"), title);
  return {};
}

}  // namespace

std::string draw(const results& r, const settings& how) {
  const std::string missing = draw("crossover", crossover_title, crossover_script(r, how), how);
  return missing.empty() ? draw("forms", forms_title, forms_script(r, how), how) : missing;
}

}  // namespace ogive::crossover
