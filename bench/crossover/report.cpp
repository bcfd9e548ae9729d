#include <ogive/version.hpp>

#include <nlohmann/json.hpp>

#include <bench/crossover/report.hpp>
#include <bench/crossover/table.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <ostream>
#include <sstream>
#include <stdexcept>

namespace ogive::crossover {

namespace {

using where = crossing::where;

struct versus {
  const char* name;
  double point::*first;
  double point::*second;
};
/// The crossings that are reported: the first is cheaper at few tokens.
constexpr versus left_right{"left_right", &point::left, &point::right};
constexpr versus softmax_right{"softmax_right", &point::softmax, &point::right};
constexpr versus softmax_left{"softmax_left", &point::softmax, &point::left};

crossing timed(const curve& c, const versus& two) { return c.timed(two.first, two.second); }

/// Three digits, without an exponent.
std::string digits(double x) {
  if (std::isnan(x)) return "–";
  const int before = x < 1 ? 1 : static_cast<int>(std::log10(x)) + 1;
  return text("%.*f", std::max(0, 3 - before + (x < 0.1 ? 1 : 0)), x);
}
std::string percent(double share) { return text("%.3g %%", 100 * share); }
std::string whole(index_t n) { return std::to_string(n); }

/// n/d as a fraction where it is below one.
std::string multiple(double n_over_d) {
  if (n_over_d >= 1) return text("%.3g", n_over_d);
  const index_t sixteenths = std::lround(16 * n_over_d), common = std::gcd(sixteenths, index_t{16});
  return whole(sixteenths / common) + '/' + whole(16 / common);
}

/// n* and n*/d of a crossing; an end of the range if it lies beyond.
std::vector<std::string> cells(const crossing& x, index_t d) {
  const double ratio = x.n / static_cast<double>(d);
  if (x.at == where::inside) return {text("%.0f", x.n), text("%.2f", ratio)};
  const std::string sign = x.at == where::below ? "< " : "> ";
  return {sign + text("%.0f", x.n), sign + multiple(ratio)};
}

void append(std::vector<std::string>& row, const std::vector<std::string>& more) {
  row.insert(row.end(), more.begin(), more.end());
}

table crossings_table(const results& r, bool causal) {
  table t{.title = std::string(causal ? "Causal" : "Non-causal") +
                   ": n*, the tokens from which on the right product is cheaper",
          .groups = {{"", 1}, {"counted", 2}, {"timed, against left", 2}, {"against softmax", 2}, {"", 2}},
          .headings = {"d", "n*", "n*/d", "n*", "n*/d", "n*", "n*/d", "left/right", "softmax/right"}};
  for (const curve& c : r.curves) {
    if (c.causal != causal) continue;
    const point& last = c.points.back();
    std::vector<std::string> row{whole(c.d), whole(c.counted.crossing),
                                 digits(static_cast<double>(c.counted.crossing) / static_cast<double>(c.d))};
    append(row, cells(timed(c, left_right), c.d));
    append(row, cells(timed(c, softmax_right), c.d));
    append(row, {text("%.1f", last.left / last.right), text("%.1f", last.softmax / last.right)});
    t.rows.push_back(row);
    t.groups.back().title = "times at n = " + whole(last.n / c.d) + " d";
  }
  return t;
}

/// All of it in a line per d, for a page.
table summary_table(const results& r) {
  table t{.title = "n*, the tokens from which on the right product is cheaper",
          .headings = {"d", "counted", "timed", "against softmax", "causal: counted", "timed", "against softmax"}};
  const auto found = [](const curve& c, const versus& two) {
    const auto cell = cells(timed(c, two), c.d);
    return timed(c, two).at == where::inside ? cell[0] + " = " + cell[1] + " d" : cell[0];
  };
  for (const index_t d : all_dims) {
    std::vector<std::string> row{whole(d)};
    for (const curve& c : r.curves) {
      if (c.d != d) continue;
      const point& last = c.points.back();
      append(row, {whole(c.counted.crossing), found(c, left_right), found(c, softmax_right)});
      row.back() += text("; %.0f× faster at n = %td d", last.softmax / last.right, last.n / d);
    }
    t.rows.push_back(row);
  }
  return t;
}

table points_table(const results& r, bool causal) {
  table t{.title = std::string(causal ? "Causal" : "Non-causal") + ": microseconds per token of a head",
          .groups = {{"", 1}},
          .headings = {"n/d"}};
  for (const curve& c : r.curves) {
    if (c.causal != causal) continue;
    t.groups.push_back({"d = " + whole(c.d), 3});
    append(t.headings, {"left", "right", "softmax"});
    t.rows.resize(c.points.size());
    for (std::size_t i = 0; i < c.points.size(); ++i) {
      const point& p = c.points[i];
      const double n = static_cast<double>(p.n);
      if (t.rows[i].empty()) t.rows[i].push_back(multiple(n / static_cast<double>(c.d)));
      append(t.rows[i], {digits(1e6 * p.left / n), digits(1e6 * p.right / n), digits(1e6 * p.softmax / n)});
    }
  }
  return t;
}

table agreements_table(const results& r) {
  table t{.title = "Left against right product on this input, ‖left − right‖ / ‖right‖",
          .groups = {{"", 1}},
          .headings = {"d"},
          .note = "The bound holds for independent roundings; float32."};
  for (const bool causal : {false, true}) {
    for (const char* n : {"n = d", "n = most"})
      t.groups.push_back({std::string(causal ? "causal" : "non-causal") + ", " + n, 2});
    for (int i = 0; i < 2; ++i) append(t.headings, {"found", "bound"});
  }
  for (const index_t d : all_dims) {
    std::vector<std::string> row{whole(d)};
    for (const curve& c : r.curves) {
      if (c.d != d) continue;
      for (const agreement& a : c.agreements) append(row, {text("%.1e", a.difference), text("%.1e", a.bound)});
    }
    t.rows.push_back(row);
  }
  return t;
}

table favor_rows(const results& r) {
  const favor_table& f = r.favor;
  table t{
      .title = text("FAVOR+ approaches softmax attention: ‖o − softmax‖ / ‖softmax‖, d = %td, n = %td", f.d, f.tokens),
      .headings = {"features", "independent", "orthogonal", "orthogonal/independent"},
      .note = text("Means over %d projections. Four times the features halve the error.", f.seeds)};
  for (const favor_row& row : f.rows) {
    t.rows.push_back(
        {whole(row.features), percent(row.iid), percent(row.orthogonal), text("%.2f", row.orthogonal / row.iid)});
  }
  return t;
}

std::string bytes(double count) {
  if (count < 1024 * 1024) return text("%.0f KiB", count / 1024);
  return text("%.0f MiB", count / (1024 * 1024));
}

table decoding_rows(const results& r) {
  const decoding_table& d = r.decoding;
  table t{
      .title = text("Decoding one token, %td heads, d = %td: softmax with its cache, linear attention with its state",
                    d.heads, d.d),
      .groups = {{"", 1}, {"softmax", 2}, {"state", 2}, {"", 1}},
      .headings = {"n", "time", "memory moved", "time", "memory moved", "softmax/state, time"}};
  for (const decoding_row& row : d.rows) {
    t.rows.push_back({whole(row.n), digits(1e6 * row.softmax_seconds) + " µs", bytes(row.softmax_bytes),
                      digits(1e6 * row.state_seconds) + " µs", bytes(row.state_bytes),
                      text("%.1f", row.softmax_seconds / row.state_seconds)});
  }
  return t;
}

table forms_rows(const results& r) {
  const forms_table& f = r.forms;
  const auto found = [&](double forms_row::*first, double forms_row::*second) {
    const crossing x = f.timed(first, second);
    return text("n = %s%.0f", x.at == where::below ? "< " : x.at == where::above ? "> " : "", x.n);
  };
  table t{.title =
              text("A time-invariant system, S4D, %td channels of %td complex modes: nanoseconds per token and channel",
                   f.channels, f.modes),
          .groups = {{"", 1}, {"recurrence", 1}, {"convolution", 3}, {"", 1}},
          .headings = {"n", "", "direct", "transforms", "kernel kept", "difference"},
          .note = "Transforms with a kernel that is kept overtake direct sums at " +
                  found(&forms_row::direct, &forms_row::kept) + ", the recurrence at " +
                  found(&forms_row::recurrent, &forms_row::kept) + "; the recurrence overtakes direct sums at " +
                  found(&forms_row::direct, &forms_row::recurrent) + '.'};
  for (const forms_row& row : f.rows) {
    const double each = 1e9 / static_cast<double>(row.n * f.channels);
    t.rows.push_back({whole(row.n), digits(each * row.recurrent), digits(each * row.direct), digits(each * row.made),
                      digits(each * row.kept), text("%.1e", row.difference)});
  }
  return t;
}

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw std::runtime_error(path.string() + " cannot be written");
}

std::string csv(const results& r) {
  std::string lines = "d,causal,n,left_flops,right_flops,left_seconds,right_seconds,softmax_seconds\n";
  for (const curve& c : r.curves) {
    for (const point& p : c.points) {
      lines += text("%td,%d,%td,%lld,%lld,%.6e,%.6e,%.6e\n", c.d, c.causal ? 1 : 0, p.n,
                    static_cast<long long>(c.counted.left(p.n)), static_cast<long long>(c.counted.right(p.n)), p.left,
                    p.right, p.softmax);
    }
  }
  return lines;
}

std::string forms_csv(const results& r) {
  std::string lines = "n,recurrent_seconds,direct_seconds,transforms_seconds,kernel_kept_seconds\n";
  for (const forms_row& row : r.forms.rows) {
    lines += text("%td,%.6e,%.6e,%.6e,%.6e\n", row.n, row.recurrent, row.direct, row.made, row.kept);
  }
  return lines;
}

using json = nlohmann::ordered_json;

json describe(const crossing& x, index_t d) {
  if (x.at == where::inside) return {{"n", x.n}, {"n_over_d", x.n / static_cast<double>(d)}};
  return {{"n", nullptr}, {"n_over_d", nullptr}, {x.at == where::below ? "below" : "above", x.n}};
}

json describe(const curve& c) {
  const cost& f = c.counted;
  json entry{{"d", c.d}, {"causal", c.causal}};
  entry["counted"] = {{"n", f.crossing},
                      {"n_over_d", static_cast<double>(f.crossing) / static_cast<double>(c.d)},
                      {"flops", f.left(f.crossing)},
                      {"left_flops", {{"n^2", f.left_square}, {"n", f.left_linear}}},
                      {"right_flops", {{"n", f.right_linear}}}};
  entry["timed"] = describe(timed(c, left_right), c.d);
  for (const versus& two : {softmax_right, softmax_left})
    entry[std::string("timed_") + two.name] = describe(timed(c, two), c.d);
  for (const agreement& a : c.agreements) {
    entry["agreement"].push_back({{"n", a.n}, {"difference", a.difference}, {"bound", a.bound}});
  }
  for (const point& p : c.points) {
    entry["points"].push_back({{"n", p.n},
                               {"left_flops", f.left(p.n)},
                               {"right_flops", f.right(p.n)},
                               {"left_seconds", p.left},
                               {"right_seconds", p.right},
                               {"softmax_seconds", p.softmax}});
  }
  return entry;
}

json describe(const results& r, const settings& how) {
  const machine& m = r.machine;
  const std::string version = text("%d.%d.%d", OGIVE_VERSION_MAJOR, OGIVE_VERSION_MINOR, OGIVE_VERSION_PATCH);
  json all{{"program", "ogive_crossover"}, {"version", version}, {"commit", m.commit}};
  all["machine"] = {{"cpu", m.cpu}, {"cores", m.cores}, {"isa", m.isa}, {"fma_peak_flops_per_second", m.fma_peak}};
  all["compiler"] = m.compiler;
  all["flags"] = m.flags;
  all["input"] = r.input;
  all["seed"] = how.seed;
  all["threads"] = how.threads;
  all["short"] = how.brief;
  all["type"] = "float32";
  all["seconds"] = r.seconds;
  for (const curve& c : r.curves) all["crossover"].push_back(describe(c));
  all["favor"] = {{"d", r.favor.d}, {"n", r.favor.tokens}, {"seeds", r.favor.seeds}};
  for (const favor_row& row : r.favor.rows) {
    all["favor"]["rows"].push_back({{"features", row.features}, {"iid", row.iid}, {"orthogonal", row.orthogonal}});
  }
  all["decoding"] = {{"heads", r.decoding.heads}, {"d", r.decoding.d}};
  for (const decoding_row& row : r.decoding.rows) {
    all["decoding"]["rows"].push_back({{"n", row.n},
                                       {"softmax_seconds", row.softmax_seconds},
                                       {"softmax_bytes", row.softmax_bytes},
                                       {"state_seconds", row.state_seconds},
                                       {"state_bytes", row.state_bytes}});
  }
  all["forms"] = {{"channels", r.forms.channels}, {"modes", r.forms.modes}};
  for (const forms_row& row : r.forms.rows) {
    all["forms"]["rows"].push_back({{"n", row.n},
                                    {"recurrent_seconds", row.recurrent},
                                    {"direct_seconds", row.direct},
                                    {"transforms_seconds", row.made},
                                    {"kernel_kept_seconds", row.kept},
                                    {"difference", row.difference}});
  }
  return all;
}

std::string markdown(const results& r, const settings& how) {
  std::ostringstream out;
  out << "```\n";
  print_head(out, r, how);
  out << "```\n";
  summary_table(r).print_markdown(out);
  favor_rows(r).print_markdown(out);
  decoding_rows(r).print_markdown(out);
  forms_rows(r).print_markdown(out);
  return out.str();
}

}  // namespace

void print_head(std::ostream& out, const results& r, const settings& how) {
  const machine& m = r.machine;
  out << m.cpu << ", " << m.cores << " cores; " << how.threads << (how.threads == 1 ? " thread" : " threads")
      << ", float32, " << m.isa << ", " << text("%.0f", 1e-9 * m.fma_peak) << " GFLOP/s at most per thread\n"
      << m.compiler << ' ' << m.flags << "; commit " << m.commit << '\n'
      << "q, k, v: " << r.input << '\n';
}

void print_agreements(std::ostream& out, const results& r) {
  agreements_table(r).print(out);
  out << std::flush;
}

void print_measures(std::ostream& out, const results& r) {
  for (const bool causal : {false, true}) {
    points_table(r, causal).print(out);
    crossings_table(r, causal).print(out);
  }
  favor_rows(r).print(out);
  decoding_rows(r).print(out);
  forms_rows(r).print(out);
}

void write_files(const results& r, const settings& how) {
  std::filesystem::create_directories(how.out);
  write(how.out / "crossover.csv", csv(r));
  write(how.out / "forms.csv", forms_csv(r));
  write(how.out / "crossover.json", describe(r, how).dump(2) + '\n');
  write(how.out / "crossover.md", markdown(r, how));
}

}  // namespace ogive::crossover
