// The WAV files of the examples: what is written is read, and what is wrong is said.
#include "examples/wav.hpp"

#include "tests/catch.hpp"

namespace {

using file = std::vector<unsigned char>;

file of(std::uint32_t tag, std::uint32_t channels, std::uint32_t bits, const file& samples) {
  file f;
  const auto put = [&](std::size_t x, int count) {
    for (; count > 0; --count, x >>= 8) f.push_back(static_cast<unsigned char>(x & 0xFF));
  };
  const auto word = [&](std::string_view letters) { f.insert(f.end(), letters.begin(), letters.end()); };
  word("RIFF"), put(36 + samples.size(), 4), word("WAVE");
  word("fmt "), put(16, 4), put(tag, 2), put(channels, 2), put(8000, 4);
  put(8000 * channels * bits / 8, 4), put(channels * bits / 8, 2), put(bits, 2);
  word("data"), put(samples.size(), 4);
  for (const unsigned char byte : samples) f.push_back(byte);
  return f;
}

std::string error_of(const file& f) {
  try {
    wav::decode(f);
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
  return {};
}

std::string word_of(const file& f) { return error_of(f).substr(0, error_of(f).find(':')); }

}  // namespace

TEST_CASE("sound comes back from a WAV file as it was") {
  const wav::sound s{44100, 2, {0.25F, -1, 1, 0, 1e-20F, -0.5F}};
  const wav::sound back = wav::decode(wav::encode(s));
  CHECK(back.rate == s.rate);
  CHECK(back.channels == s.channels);
  CHECK(back.samples == s.samples);
}

TEST_CASE("16-bit samples, and chunks that say nothing of them") {
  file f = of(1, 1, 16, {0x00, 0x80, 0xFF, 0x7F, 0x01, 0x00});
  const file more = {'L', 'I', 'S', 'T', 3, 0, 0, 0, 'a', 'b', 'c', 0};  // of odd size, padded
  f.insert(f.begin() + 12, more.begin(), more.end());
  const wav::sound s = wav::decode(f);
  CHECK(s.rate == 8000);
  CHECK(s.samples == std::vector<float>{-1, 32767.0F / 32768, 1.0F / 32768});
}

TEST_CASE("a file cut anywhere is refused") {
  const file whole = wav::encode({8000, 1, {0.5F, 0.25F}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " bytes");
    const std::string word = word_of(file(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    CHECK(word == (size < 12 ? "not a WAV file" : "truncated"));
  }
}

TEST_CASE("malformed and unsupported files are refused") {
  const file samples(8, 0);
  CHECK(word_of(of(1, 1, 24, file(6, 0))) == "unsupported");
  CHECK(word_of(of(6, 1, 8, samples)) == "unsupported");
  CHECK(word_of(of(1, 0, 16, samples)) == "malformed");
  CHECK(word_of(of(1, 2, 16, file(6, 0))) == "malformed");          // half a frame
  CHECK(word_of(of(3, 1, 32, {0, 0, 0xC0, 0x7F})) == "malformed");  // a NaN
  CHECK(word_of(of(0xFFFE, 1, 16, samples)) == "malformed");        // extensible, with no extension
  file f = of(1, 1, 16, samples);
  f[32] = 3;
  CHECK(word_of(f) == "malformed");  // frames of three bytes
  f = of(1, 1, 16, samples);
  f[12] = 'x';
  CHECK(word_of(f) == "malformed");  // samples without a format
  f = of(1, 1, 16, samples);
  f[43] = 0xFF;
  CHECK(word_of(f) == "truncated");  // more samples than there are
  CHECK(error_of(of(1, 1, 16, samples)).empty());
}

TEST_CASE("a file that cannot be written is not there") {
  const std::string path = "no/such/folder/sound.wav";
  CHECK_THROWS_AS(wav::write(path, {8000, 1, {0}}), std::runtime_error);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_AS(wav::read(path), std::runtime_error);
}
