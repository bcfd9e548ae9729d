#include <ogive/testing/safetensors.hpp>

#include <filesystem>

#include "tests/catch.hpp"

using namespace ogive;
using ogive::testing::rng;
using ogive::testing::safetensors;
using ogive::testing::safetensors_writer;

namespace {

/// A file that is gone at the end of the scope.
class temporary_file {
 public:
  temporary_file() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ogive-" + std::to_string(::getpid()) + "-" + std::to_string(number++) + ".safetensors");
  }
  explicit temporary_file(const std::string& bytes) : temporary_file() {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~temporary_file() { std::filesystem::remove(path_); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

/// A file with this header and `data` bytes behind it.
std::string with_header(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return bytes + header + std::string(data, '\0');
}

/// What the reader says about such bytes; empty when it accepts them.
std::string complaint(const std::string& bytes) {
  const temporary_file file(bytes);
  try {
    const safetensors opened(file.path());
    for (const auto& [name, entry] : opened.entries()) static_cast<void>(opened.values<double>(name));
    return "";
  } catch (const std::runtime_error& refused) {
    const std::string text = refused.what();
    CHECK(text.find(file.path().string()) != std::string::npos);
    return text;
  }
}

bool says(const std::string& bytes, const std::string& words) {
  const std::string text = complaint(bytes);
  INFO(text);
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

std::string entry(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"("x":{"dtype":)" + type + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string valid_file() {
  const temporary_file file;
  tensor<float, 2> q({3, 5});
  tensor<std::int64_t, 1> lengths({3}, 4);
  rng random(11);
  testing::fill_uniform(random, q.all());
  safetensors_writer writer;
  writer.metadata["op"] = "linattn";
  writer.add("q", q.all());
  writer.add("lengths", lengths.all());
  writer.write(file.path());
  return file.bytes();
}

}  // namespace

TEMPLATE_TEST_CASE("every type comes back as it was written", "", double, float, float16, bfloat16, std::int64_t,
                   std::int32_t, std::int16_t, std::int8_t, std::uint8_t, bool) {
  OGIVE_SEED(seed, 5);
  rng random(seed);
  tensor<TestType, 3> x({2, 3, 4});
  testing::for_each(x.all(), [&](TestType& element, index_t) {
    element = static_cast<TestType>(std::is_same_v<TestType, bool> ? (random.unit() < 0.5) : 100 * random.unit());
  });
  const temporary_file file;
  safetensors_writer writer;
  writer.add("x", x.all().permute({2, 0, 1}));
  writer.write(file.path());

  const safetensors opened(file.path());
  CHECK(opened.shape("x") == std::vector<index_t>{4, 2, 3});
  const auto back = opened.get<TestType, 3>("x");
  const auto as_double = opened.values<double>("x");
  testing::for_each(back.all(), [&](const TestType& element, index_t i) {
    const index_t a = i / 6;
    const index_t b = i / 3 % 2;
    const index_t c = i % 3;
    CHECK(static_cast<double>(element) == static_cast<double>(x(b, c, a)));
    CHECK(as_double[static_cast<std::size_t>(i)] == static_cast<double>(element));
  });
}

TEST_CASE("complex numbers are pairs on a last axis of their own") {
  tensor<std::complex<double>, 1> x({2});
  x(0) = {1, 2};
  x(1) = {3, -4};
  const temporary_file file;
  safetensors_writer writer;
  writer.add("x", x.all());
  writer.write(file.path());
  const safetensors opened(file.path());
  CHECK(opened.shape("x") == std::vector<index_t>{2, 2});
  CHECK(opened.get<std::complex<double>, 1>("x")(1) == x(1));
  CHECK(opened.get<double, 2>("x")(1, 1) == -4);
}

TEST_CASE("metadata, scalars and tensors without elements survive") {
  float scalar = 3;
  tensor<double, 3> none({2, 0, 4});
  const temporary_file file;
  safetensors_writer writer;
  writer.metadata = {{"op", "ssd"}, {"note", "\"quoted\" \\ und Größe"}};
  writer.add("none", none.all());
  writer.add("scalar", view<float, 1>(&scalar, {1}));
  writer.write(file.path());
  const safetensors opened(file.path());
  CHECK(opened.metadata() == writer.metadata);
  CHECK(opened.get<double, 3>("none").extents() == none.extents());
  CHECK(opened.values<float>("scalar") == std::vector<float>{3});
  CHECK(complaint(with_header("{" + entry(R"("F32")", "[]", "[0,4]") + "}", 4)).empty());
  CHECK(complaint(with_header("{}   ", 0)).empty());
}

TEST_CASE("numbers convert where nothing is lost but rounding") {
  tensor<std::int64_t, 1> large({1}, 300);
  tensor<double, 1> real({1}, 0.5);
  const temporary_file file;
  safetensors_writer writer;
  writer.add("large", large.all());
  writer.add("real", real.all());
  writer.write(file.path());
  const safetensors opened(file.path());
  CHECK(opened.values<float>("large").front() == 300);
  CHECK(opened.values<std::int32_t>("large").front() == 300);
  CHECK_THROWS_AS(opened.values<std::int8_t>("large"), std::runtime_error);
  CHECK_THROWS_AS(opened.values<std::int64_t>("real"), std::runtime_error);
  CHECK_THROWS_AS((opened.get<double, 2>("real")), std::runtime_error);
  CHECK_THROWS_AS(opened.values<double>("absent"), std::runtime_error);
  CHECK_THROWS_AS(opened.values<std::complex<double>>("real"), std::runtime_error);
  CHECK_THROWS_AS(writer.add("real", real.all()), std::invalid_argument);
}

TEST_CASE("a file that is missing or cannot be written is named") {
  CHECK_THROWS_AS(safetensors("/nowhere/at all.safetensors"), std::runtime_error);
  CHECK_THROWS_AS(safetensors_writer().write("/nowhere/at all.safetensors"), std::runtime_error);
}

TEST_CASE("each way to be malformed has its own sentence") {
  says("1234567", "not even the 8");
  says(with_header("{}", 0).substr(0, 9), "announces a header of 2 bytes");
  says(std::string(8, '\xff') + "{}", "announces a header of 18446744073709551615 bytes");
  says(with_header("", 0), "not valid JSON");
  says(with_header("{\"x\":", 0), "not valid JSON");
  says(with_header("[]", 0), "not a JSON object");
  says(with_header(R"({"__metadata__":3})", 0), "__metadata__");
  says(with_header(R"({"__metadata__":{"seed":3}})", 0), "'seed' is not a string");
  says(with_header(R"({"x":3})", 0), "tensor 'x' is not described by an object");
  says(with_header(R"({"x":{"dtype":"F32","shape":[0]}})", 0), "has no data_offsets");
  says(with_header("{" + entry(R"("F31")", "[1]", "[0,4]") + "}", 4), R"(unknown dtype "F31")");
  says(with_header("{" + entry("7", "[1]", "[0,4]") + "}", 4), "unknown dtype 7");
  says(with_header("{" + entry(R"("F32")", "4", "[0,4]") + "}", 4), "not an array");
  says(with_header("{" + entry(R"("F32")", "[-1]", "[0,4]") + "}", 4), "not of natural numbers");
  says(with_header("{" + entry(R"("F32")", "[1.0]", "[0,4]") + "}", 4), "not of natural numbers");
  says(with_header("{" + entry(R"("F32")", "[4294967296,4294967296]", "[0,4]") + "}", 4), "too large");
  says(with_header("{" + entry(R"("F32")", "[18446744073709551615]", "[0,4]") + "}", 4), "too large");
  says(with_header("{" + entry(R"("F32")", "[1]", "[0]") + "}", 4), "not two natural numbers");
  says(with_header("{" + entry(R"("F32")", "[1]", "[-4,0]") + "}", 4), "not two natural numbers");
  says(with_header("{" + entry(R"("F32")", "[1]", "[4,0]") + "}", 4), "outside the 4 bytes");
  says(with_header("{" + entry(R"("F32")", "[2]", "[0,8]") + "}", 4), "truncated");
  says(with_header("{" + entry(R"("F32")", "[1]", "[18446744073709551612,18446744073709551615]") + "}", 4), "outside");
  says(with_header("{" + entry(R"("F32")", "[2]", "[0,4]") + "}", 4), "needs 8 bytes");
  says(with_header("{" + entry(R"("F32")", "[1]", "[4,8]") + "}", 8), "a hole of 4 bytes");
  says(with_header("{" + entry(R"("F32")", "[1]", "[0,4]") + "}", 8), "4 bytes after its last tensor");
  says(with_header("{" + entry(R"("F32")", "[1]", "[0,4]") + "," + entry(R"("F32")", "[1]", "[0,4]") + "}", 4),
       "twice");
  says(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                   12),
       "tensor 'b' overlaps");
}

TEST_CASE("every truncation of a valid file is refused") {
  const std::string whole = valid_file();
  REQUIRE(complaint(whole).empty());
  for (std::size_t kept = 0; kept < whole.size(); ++kept) {
    INFO(kept << " of " << whole.size() << " bytes");
    REQUIRE_FALSE(complaint(whole.substr(0, kept)).empty());
  }
  CHECK_FALSE(complaint(whole + "x").empty());
}

TEST_CASE("a valid file with damaged bytes is read or refused, never worse") {
  OGIVE_SEED(seed, 13);
  rng random(seed);
  const std::string whole = valid_file();
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (index_t faults = random.integer(1, 3); faults > 0; --faults) {
      const auto at = static_cast<std::size_t>(random.integer(0, static_cast<index_t>(whole.size()) - 1));
      damaged[at] = static_cast<char>(random.integer(0, 255));
    }
    static_cast<void>(complaint(damaged));
  }
}
