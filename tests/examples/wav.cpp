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

TEST_CASE("an extensible format is what its extension says") {
  const file plain = of(0xFFFE, 1, 16, {0x00, 0x40, 0x00, 0xC0});
  const auto extended = [&](unsigned char tag, unsigned char bits) {
    file f = plain;
    f[16] = 40;    // bytes of the format chunk
    f[34] = bits;  // of a sample
    f[32] = static_cast<unsigned char>(bits / 8);
    file more(24, 0);
    more[0] = 22, more[2] = bits, more[8] = tag;
    f.insert(f.begin() + 36, more.begin(), more.end());
    return f;
  };
  CHECK(wav::decode(extended(1, 16)).samples == std::vector<float>{0.5F, -0.5F});
  CHECK(wav::decode(extended(3, 32)).samples.size() == 1);
  CHECK(word_of(extended(1, 24)) == "unsupported");
  CHECK(word_of(extended(6, 8)) == "unsupported");
}

TEST_CASE("no samples are no fault; sizes beyond the file are one") {
  CHECK(wav::decode(of(1, 2, 16, {})).samples.empty());
  CHECK(wav::decode(wav::encode({8000, 2, {}})).samples.empty());
  for (const std::size_t size_at : std::initializer_list<std::size_t>{16, 40}) {  // of the format, of the samples
    file f = of(1, 1, 16, file(8, 0));
    for (std::size_t i = 0; i < 4; ++i) f[size_at + i] = 0xFF;
    CHECK(word_of(f) == "truncated");
  }
  file f = of(1, 1, 16, {});
  f.resize(f.size() - 8);  // no chunk of samples, but one of odd size, with nothing after its padding, or without it
  const file odd = {'L', 'I', 'S', 'T', 1, 0, 0, 0, 'a', 0};
  f.insert(f.end(), odd.begin(), odd.end());
  CHECK(word_of(f) == "truncated");
  f.pop_back();
  CHECK(word_of(f) == "truncated");
}

TEST_CASE("a file with any byte changed is sound, or refused") {
  const file whole = wav::encode({8000, 2, {0.5F, 0.25F, -0.5F, 1}});
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int byte : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      file f = whole;
      f[at] = static_cast<unsigned char>(byte);
      CAPTURE(at, byte);
      if (!error_of(f).empty()) continue;
      const wav::sound s = wav::decode(f);
      CHECK(s.channels > 0);
      CHECK(s.rate > 0);
      CHECK(s.samples.size() % s.channels == 0);
      for (const float x : s.samples) CHECK(std::isfinite(x));
    }
  }
}

TEST_CASE("a file that cannot be written is not there") {
  const std::string path = "no/such/folder/sound.wav";
  CHECK_THROWS_AS(wav::write(path, {8000, 1, {0}}), std::runtime_error);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_AS(wav::read(path), std::runtime_error);
}
