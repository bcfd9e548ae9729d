// Where linear attention overtakes softmax attention: counts, measures, prints, writes, draws.
#include <bench/clock.hpp>
#include <bench/crossover/measures.hpp>
#include <bench/crossover/report.hpp>
#include <iostream>

namespace {

using namespace ogive::crossover;

void run(const settings& how) {
  const double begin = ogive::bench::wall_seconds();
  progress shown(how.quiet);
  const input from(how);
  results r;
  r.input = from.description();
  r.machine = describe_machine();
  print_head(std::cout, r, how);

  for (const bool causal : {false, true}) {
    for (const ogive::index_t d : all_dims) {
      shown.step("counting flops, comparing left with right product", "d = " + std::to_string(d), 0);
      curve& c = r.curves.emplace_back();
      c.d = d;
      c.causal = causal;
      c.counted = count_products(d, causal);
      compare_products(c, from, how);
    }
  }
  shown.clear();
  print_agreements(std::cout, r);

  double expected = side_lines(how.brief) * side_share(how.brief);
  for (const curve& c : r.curves) expected += expected_seconds(c.d, c.causal, how.brief, r.machine.fma_peak);
  shown.expect(expected);
  for (curve& c : r.curves) time_products(c, from, how, r.machine.fma_peak, shown);
  r.favor = measure_favor(from, how, shown);
  r.decoding = time_decoding(how, shown);
  r.forms = time_forms(how, shown);
  r.seconds = ogive::bench::wall_seconds() - begin;
  shown.clear();
  print_measures(std::cout, r);

  write_files(r, how);
  const std::string missing = draw(r, how);
  std::cout << "\nWritten: " << how.out.string() << "/crossover.{csv,json,md"
            << (missing.empty() ? ",svg,png} and forms.{csv,svg,png}" : "} and forms.csv; no pictures: " + missing)
            << "  (" << static_cast<int>(r.seconds) << " s)\n";
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const settings how = parse(count, arguments);
    if (how.help) {
      std::cout << help_text;
    } else {
      run(how);
    }
    return 0;
  } catch (const usage_error& wrong) {
    std::cerr << "ogive_crossover: " << wrong.what() << "; --help tells more\n";
    return 2;
  } catch (const std::exception& failure) {
    std::cerr << "ogive_crossover: " << failure.what() << '\n';
    return 1;
  }
}
