// ogive_golden itself: it passes what is right, and says in words what is wrong with everything else.
#include <ogive/testing/safetensors.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.hpp"

using namespace ogive;
namespace fs = std::filesystem;

namespace {

/// What a call of the program printed, and its exit status.
struct answer {
  std::string text;
  int status;

  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
  std::string last_line() const {
    const std::size_t end = text.find_last_not_of('\n');
    const std::size_t begin = text.find_last_of('\n', end);
    return text.substr(begin + 1, end - begin);
  }
};

answer call(const std::string& arguments) {
  answer given{"", -1};
  FILE* out = popen((OGIVE_GOLDEN_TOOL " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(out != nullptr);
  for (int letter = std::fgetc(out); letter != EOF; letter = std::fgetc(out)) given.text += static_cast<char>(letter);
  const int status = pclose(out);
  given.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;  // −1: it crashed
  return given;
}

/// A folder of its own, gone with the test.
struct folder {
  fs::path path = fs::temp_directory_path() / ("ogive_golden_" + std::to_string(getpid()));
  folder() { fs::create_directories(path); }
  ~folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

/// relu of four numbers.
testing::safetensors_writer relu_case() {
  testing::safetensors_writer file;
  file.metadata = {{"op", "fm_relu"},         {"options", "{}"},       {"inputs", "x"},
                   {"outputs", "out"},        {"compare", "max_norm"}, {"abs_scale", R"({"out": 2.0})"},
                   {"f32_rel_err_hint", "{}"}};
  tensor<double, 2> x({1, 4}), out({1, 4});
  const double numbers[] = {-1, 0, 0.5, 2};
  for (index_t i = 0; i < 4; ++i) {
    x(0, i) = numbers[i];
    out(0, i) = std::max(numbers[i], 0.0);
  }
  file.add("x", x.all());
  file.add("out", out.all());
  return file;
}

/// o = (q·k) v of one token, and its gradients, of which that by k is told.
testing::safetensors_writer retention_case(double d_k) {
  testing::safetensors_writer file;
  file.metadata = {{"op", "retention"},    {"options", "{}"},          {"inputs", "q,k,v"},
                   {"outputs", "out"},     {"cotangents", "grad_out"}, {"gradients", "d_q,d_k,d_v"},
                   {"compare", "max_norm"}};
  const std::pair<const char*, double> numbers[] = {{"q", 2},        {"k", 0.5},   {"v", 3},     {"out", 3},
                                                    {"grad_out", 1}, {"d_q", 1.5}, {"d_k", d_k}, {"d_v", 1}};
  for (const auto& [name, number] : numbers) file.add(name, tensor<double, 4>({1, 1, 1, 1}, number).all());
  return file;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

void refused(const answer& given, const std::string& words) {
  INFO(given.text);
  CHECK(given.status == 1);
  CHECK(given.says(words));
  CHECK(given.last_line() == "0 passed, 1 failed");
}

}  // namespace

TEST_CASE("ogive_golden passes what is right") {
  const folder here;
  relu_case().write(here / "right.safetensors");
  const answer given = call(here / "right.safetensors");
  INFO(given.text);
  CHECK(given.status == 0);
  CHECK(given.last_line() == "1 passed, 0 failed");
  CHECK(call("-q " + here.path.string()).text == "1 passed, 0 failed\n");
}

TEST_CASE("ogive_golden finds a wrong value") {
  const folder here;
  relu_case().write(here / "wrong.safetensors");
  std::string bytes = bytes_of(here / "wrong.safetensors");
  bytes[bytes.size() - 8 + 3] = 1;  // the last number, 2, by 2⁻²⁷: the least that double sees and float does not
  write_bytes(here / "wrong.safetensors", bytes);
  const answer given = call(here / "wrong.safetensors");
  refused(given, "FAIL");
  CHECK(given.says("in double"));
  CHECK_FALSE(given.says("in float"));
}

TEST_CASE("ogive_golden compares gradients") {
  const folder here;
  const std::string path = here / "case.safetensors";
  retention_case(6).write(path);
  CHECK(call("-q " + path).text == "1 passed, 0 failed\n");

  retention_case(6 + 1e-7).write(path);  // by 2e-8 of the whole: more than double has room for, less than float
  const answer given = call(path);
  refused(given, "backward in double");
  CHECK_FALSE(given.says("backward in float"));

  auto file = retention_case(6);
  file.metadata["gradients"] = "d_q,d_k,d_v,d_w";
  file.write(path);
  refused(call(path), "'d_w' is named as a gradient but not stored");
  file.add("d_w", tensor<double, 1>({1}).all());
  file.write(path);
  refused(call(path), "gradient 'd_w' was not compared");
}

TEST_CASE("ogive_golden says what is wrong with a file") {
  const folder here;
  const std::string path = here / "case.safetensors";
  relu_case().write(path);
  const std::string right = bytes_of(path);

  for (const std::size_t length : {std::size_t(0), std::size_t(5), std::size_t(40), right.size() - 1}) {
    write_bytes(path, right.substr(0, length));
    INFO(length << " bytes of " << right.size());
    refused(call(path), "safetensors: ");
  }
  std::string damaged = right;
  damaged[8] = '[';
  write_bytes(path, damaged);
  refused(call(path), "not valid JSON");
  refused(call(here / "absent.safetensors"), "cannot be opened");

  auto file = relu_case();
  file.metadata["options"] = "{";
  file.write(path);
  refused(call(path), "metadata 'options' that is not a JSON object");

  file = relu_case();
  file.metadata["compare"] = "by eye";
  file.write(path);
  refused(call(path), "unknown comparison 'by eye'");

  file = relu_case();
  file.metadata["outputs"] = "out,more";
  file.write(path);
  refused(call(path), "'more' is named as an output but not stored");

  file = relu_case();
  file.metadata.erase("op");
  file.write(path);
  refused(call("--known-only " + path), "names no operator");

  file = relu_case();
  file.metadata["op"] = "fm_favor";
  file.write(path);
  refused(call(path), "W is absent");
}

TEST_CASE("ogive_golden overlooks nothing") {
  const folder here;
  auto file = relu_case();
  file.add("bias", tensor<double, 1>({1}).all());
  file.metadata["inputs"] = "x,bias";
  file.write(here / "more.safetensors");
  refused(call(here.path.string()), "input 'bias' is not understood");

  file = relu_case();
  file.add("gain", tensor<double, 1>({1}).all());
  file.metadata["outputs"] = "out,gain";
  file.write(here / "more.safetensors");
  refused(call(here.path.string()), "output 'gain' was not compared");
  fs::remove(here / "more.safetensors");
  refused(call(here.path.string()), "holds no .safetensors file");
}

TEST_CASE("ogive_golden lists operators it does not know apart") {
  const folder here;
  auto file = relu_case();
  file.metadata["op"] = "of_tomorrow";
  file.write(here / "new.safetensors");
  const answer given = call(here.path.string());
  refused(given, "Unknown operators:\n  new: operator of_tomorrow");
  CHECK_FALSE(given.says("Wrong"));
  const answer skipped = call("--known-only " + here.path.string());
  CHECK(skipped.status == 0);
  CHECK(skipped.last_line() == "0 passed, 0 failed");
}

TEST_CASE("ogive_golden explains itself") {
  CHECK(call("--help").status == 0);
  CHECK(call("--help").says("Usage: ogive_golden"));
  CHECK(call("--list").says("ssd_varlen\n"));
  CHECK(call("").status == 2);
  CHECK(call("--no-such-option x").status == 2);
}
