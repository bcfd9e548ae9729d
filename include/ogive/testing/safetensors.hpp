// safetensors files: an 8-byte little-endian header length, a JSON header, the tensors' bytes row-major and
// little-endian, back to back. https://huggingface.co/docs/safetensors
//
// The reader trusts nothing: whatever is wrong with a file ends in a std::runtime_error that names the file, the tensor
// and the fault. It reads the header at once and a tensor's bytes when they are asked for, so a model of many
// gigabytes costs nothing to open.
#pragma once

#include <ogive/core/half.hpp>
#include <ogive/core/tensor.hpp>
#include <ogive/testing/rng.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ogive::testing {

enum class dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

namespace detail {

struct dtype_row {
  dtype type;
  std::string_view name;
  std::size_t bytes;
};
inline constexpr dtype_row dtypes[] = {{dtype::f64, "F64", 8},     {dtype::f32, "F32", 4}, {dtype::f16, "F16", 2},
                                       {dtype::bf16, "BF16", 2},   {dtype::i64, "I64", 8}, {dtype::i32, "I32", 4},
                                       {dtype::i16, "I16", 2},     {dtype::i8, "I8", 1},   {dtype::u8, "U8", 1},
                                       {dtype::boolean, "BOOL", 1}};

inline const dtype_row& row_of(dtype type) noexcept { return dtypes[static_cast<std::size_t>(type)]; }

template <class T>
constexpr dtype dtype_of() noexcept {
  if constexpr (std::is_same_v<T, double>) return dtype::f64;
  if constexpr (std::is_same_v<T, float>) return dtype::f32;
  if constexpr (std::is_same_v<T, float16>) return dtype::f16;
  if constexpr (std::is_same_v<T, bfloat16>) return dtype::bf16;
  if constexpr (std::is_same_v<T, std::int64_t>) return dtype::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return dtype::i32;
  if constexpr (std::is_same_v<T, std::int16_t>) return dtype::i16;
  if constexpr (std::is_same_v<T, std::int8_t>) return dtype::i8;
  if constexpr (std::is_same_v<T, std::uint8_t>) return dtype::u8;
  if constexpr (std::is_same_v<T, bool>) return dtype::boolean;
}

template <class T>
inline constexpr bool is_complex = requires(T x) {
  x.imag();
};

/// Native bytes from little-endian ones, or back.
template <class T>
T little_endian(T x) noexcept {
  if constexpr (std::endian::native == std::endian::big) {
    auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(x);
    std::ranges::reverse(bytes);
    return std::bit_cast<T>(bytes);
  } else {
    return x;
  }
}

template <class T>
T load(const std::byte* from) noexcept {
  std::array<std::byte, sizeof(T)> bytes;
  std::copy_n(from, sizeof(T), bytes.begin());
  return little_endian(std::bit_cast<T>(bytes));
}

/// nlohmann's parser keeps the last of two equal keys; the format forbids them.
inline nlohmann::json parse_without_duplicates(const std::string& text) {
  std::vector<std::set<std::string>> keys;
  return nlohmann::json::parse(text, [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using event_t = nlohmann::json::parse_event_t;
    if (event == event_t::object_start) keys.emplace_back();
    if (event == event_t::object_end) keys.pop_back();
    if (event == event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw std::runtime_error("the key '" + parsed.get<std::string>() + "' appears twice");
    }
    return true;
  });
}

}  // namespace detail

/// A file that has been opened and found in order.
class safetensors {
 public:
  struct entry {
    testing::dtype dtype;
    std::vector<index_t> shape;
    std::uint64_t begin;  ///< first byte in the file
    std::uint64_t bytes;
  };

  /// Reads and checks the header. \throws std::runtime_error
  explicit safetensors(const std::filesystem::path& path) : path_(path) {
    std::error_code failed;
    const std::uint64_t size = std::filesystem::file_size(path, failed);
    std::ifstream file(path, std::ios::binary);
    if (failed || !file) fail("cannot be opened");
    if (size < 8) fail("has " + std::to_string(size) + " bytes, not even the 8 of the header's length");

    std::array<std::byte, 8> prefix{};
    file.read(reinterpret_cast<char*>(prefix.data()), 8);
    const auto length = detail::load<std::uint64_t>(prefix.data());
    if (length > size - 8) {
      fail("announces a header of " + std::to_string(length) + " bytes, but has only " + std::to_string(size - 8) +
           " after the length");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    if (!file.read(text.data(), static_cast<std::streamsize>(length))) fail("cannot be read");
    read_header(text, 8 + length, size);
  }

  const std::filesystem::path& path() const noexcept { return path_; }
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  const std::map<std::string, entry>& entries() const noexcept { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }
  const entry& at(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) fail("is not in the file", name);
    return found->second;
  }
  const std::vector<index_t>& shape(const std::string& name) const { return at(name).shape; }

  /// All elements in row-major order. Floats convert to any floating type and integers to any type that holds their
  /// values; floats never to integers. For a complex T the last axis is (re, im). \throws std::runtime_error
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const entry& stored = at(name);
    if constexpr (detail::is_complex<T>) {
      if (stored.shape.empty() || stored.shape.back() != 2) fail("is not complex: its last axis is not (re, im)", name);
      const auto numbers = values<typename T::value_type>(name);
      std::vector<T> pairs;
      pairs.reserve(numbers.size() / 2);
      for (std::size_t i = 0; i < numbers.size(); i += 2) pairs.emplace_back(numbers[i], numbers[i + 1]);
      return pairs;
    } else {
      const auto bytes = raw(name);
      switch (stored.dtype) {
        case dtype::f64:
          return convert<T, double>(bytes, name);
        case dtype::f32:
          return convert<T, float>(bytes, name);
        case dtype::f16:
          return convert<T, float16>(bytes, name);
        case dtype::bf16:
          return convert<T, bfloat16>(bytes, name);
        case dtype::i64:
          return convert<T, std::int64_t>(bytes, name);
        case dtype::i32:
          return convert<T, std::int32_t>(bytes, name);
        case dtype::i16:
          return convert<T, std::int16_t>(bytes, name);
        case dtype::i8:
          return convert<T, std::int8_t>(bytes, name);
        case dtype::u8:
          return convert<T, std::uint8_t>(bytes, name);
        case dtype::boolean:
          return convert<T, bool>(bytes, name);
      }
      return {};
    }
  }

  /// The same in a tensor of the stored shape (without the axis of (re, im) for a complex T).
  /// \throws std::runtime_error also when the rank differs.
  template <class T, std::size_t Rank>
  tensor<T, Rank> get(const std::string& name) const {
    const auto numbers = values<T>(name);
    std::vector<index_t> axes = at(name).shape;
    if constexpr (detail::is_complex<T>) axes.pop_back();
    if (axes.size() != Rank) {
      fail("has rank " + std::to_string(axes.size()) + " where " + std::to_string(Rank) + " is expected", name);
    }
    ogive::shape<Rank> extents{};
    std::ranges::copy(axes, extents.begin());
    tensor<T, Rank> result(extents);
    std::copy(numbers.begin(), numbers.end(), result.data());
    return result;
  }

  [[noreturn]] void fail(const std::string& fault, const std::string& name = {}) const {
    throw std::runtime_error("safetensors: " + path_.string() + (name.empty() ? "" : ": tensor '" + name + "'") + " " +
                             fault);
  }

 private:
  void read_header(const std::string& text, std::uint64_t data, std::uint64_t size) {
    nlohmann::json header;
    try {
      header = detail::parse_without_duplicates(text);
    } catch (const std::exception& malformed) {
      fail(std::string("has a header that is not valid JSON: ") + malformed.what());
    }
    if (!header.is_object()) fail("has a header that is not a JSON object");
    for (const auto& [name, fields] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(fields);
      } else {
        entries_.emplace(name, read_entry(name, fields, data, size));
      }
    }
    check_cover(data, size);
  }

  void read_metadata(const nlohmann::json& fields) {
    if (!fields.is_object()) fail("has __metadata__ that is not an object");
    for (const auto& [key, value] : fields.items()) {
      if (!value.is_string()) fail("has __metadata__ whose '" + key + "' is not a string");
      metadata_.emplace(key, value.get<std::string>());
    }
  }

  entry read_entry(const std::string& name, const nlohmann::json& fields, std::uint64_t data,
                   std::uint64_t size) const {
    if (!fields.is_object()) fail("is not described by an object", name);
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!fields.contains(key)) fail(std::string("has no ") + key, name);
    }

    const auto& type = fields["dtype"];
    const auto* row = std::ranges::find_if(
        detail::dtypes, [&](const auto& known) { return type.is_string() && type.get<std::string>() == known.name; });
    if (row == std::end(detail::dtypes)) fail("has the unknown dtype " + type.dump(), name);

    entry stored{.dtype = row->type, .shape = {}, .begin = 0, .bytes = 0};
    const auto& shape = fields["shape"];
    if (!shape.is_array()) fail("has a shape that is not an array", name);
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<index_t>::max());
    std::uint64_t needed = row->bytes;
    bool none = false;
    for (const auto& axis : shape) {
      if (!axis.is_number_unsigned()) fail("has the shape " + shape.dump() + ", not of natural numbers", name);
      const auto extent = axis.get<std::uint64_t>();
      none = none || extent == 0;
      if (extent > most || (extent != 0 && needed > most / extent)) {
        fail("has the shape " + shape.dump() + ", too large for any memory", name);
      }
      needed *= std::max<std::uint64_t>(extent, 1);
      stored.shape.push_back(static_cast<index_t>(extent));
    }
    if (none) needed = 0;

    const auto& offsets = fields["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail("has data_offsets that are not two natural numbers", name);
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > size - data) {
      fail("has the data_offsets " + offsets.dump() + ", outside the " + std::to_string(size - data) +
               " bytes of data (is the file truncated?)",
           name);
    }
    if (end - begin != needed) {
      fail("needs " + std::to_string(needed) + " bytes for " + std::string(row->name) + " " + shape.dump() +
               ", but has " + std::to_string(end - begin),
           name);
    }
    stored.begin = data + begin;
    stored.bytes = needed;
    return stored;
  }

  /// The tensors lie back to back and cover the data.
  void check_cover(std::uint64_t data, std::uint64_t size) const {
    std::vector<std::pair<std::pair<std::uint64_t, std::uint64_t>, std::string>> order;
    for (const auto& [name, stored] : entries_) order.push_back({{stored.begin, stored.bytes}, name});
    std::ranges::sort(order);
    std::uint64_t at = data;
    for (const auto& [place, name] : order) {
      if (place.first < at) fail("overlaps the tensor before it", name);
      if (place.first > at) fail("leaves a hole of " + std::to_string(place.first - at) + " bytes before it", name);
      at = place.first + place.second;
    }
    if (at != size) fail("has " + std::to_string(size - at) + " bytes after its last tensor");
  }

  std::vector<std::byte> raw(const std::string& name) const {
    const entry& stored = at(name);
    std::vector<std::byte> bytes(static_cast<std::size_t>(stored.bytes));
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(stored.begin));
    if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
      fail("cannot be read", name);
    }
    return bytes;
  }

  template <class T, class Stored>
  std::vector<T> convert(const std::vector<std::byte>& bytes, const std::string& name) const {
    constexpr bool integers = std::is_integral_v<T>;
    std::vector<T> numbers;
    if constexpr (integers && !std::is_integral_v<Stored>) {
      fail("holds floating-point numbers, not integers", name);
    } else {
      numbers.reserve(bytes.size() / sizeof(Stored));
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(Stored)) {
        if constexpr (std::is_same_v<Stored, bool>) {
          numbers.push_back(static_cast<T>(bytes[i] != std::byte{0}));
        } else {
          const auto stored = detail::load<Stored>(bytes.data() + i);
          if constexpr (integers) {
            const auto wide = static_cast<std::int64_t>(stored);
            if (static_cast<std::int64_t>(static_cast<T>(wide)) != wide) {
              fail("holds " + std::to_string(wide) + ", which the requested type does not", name);
            }
            numbers.push_back(static_cast<T>(wide));
          } else if constexpr (sizeof(Stored) == 2 && !std::is_integral_v<Stored>) {
            numbers.push_back(static_cast<T>(static_cast<float>(stored)));
          } else {
            numbers.push_back(static_cast<T>(stored));
          }
        }
      }
    }
    return numbers;
  }

  std::filesystem::path path_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, entry> entries_;
};

/// Collects tensors and writes them in the order they came.
///
///     safetensors_writer file;
///     file.metadata["op"] = "ssd";
///     file.add("q", q.all());
///     file.write("case.safetensors");
class safetensors_writer {
 public:
  std::map<std::string, std::string> metadata;

  /// Copies x in row-major order, in its own type; a complex element becomes a trailing axis (re, im).
  /// \throws std::invalid_argument when the name was used already.
  template <class T, std::size_t Rank>
  void add(const std::string& name, const view<T, Rank>& x) {
    using element = std::remove_const_t<T>;
    if (name == "__metadata__" || header_.contains(name)) {
      throw std::invalid_argument("safetensors_writer: the name '" + name + "' is taken");
    }
    std::vector<index_t> shape(x.extents().begin(), x.extents().end());
    const std::size_t begin = bytes_.size();
    if constexpr (detail::is_complex<element>) {
      shape.push_back(2);
      for_each(x, [&](const element& z, index_t) {
        append(z.real());
        append(z.imag());
      });
      describe<typename element::value_type>(name, shape, begin);
    } else {
      for_each(x, [&](const element& number, index_t) { append(number); });
      describe<element>(name, shape, begin);
    }
  }

  /// \throws std::runtime_error when the file cannot be written.
  void write(const std::filesystem::path& path) const {
    nlohmann::ordered_json header = header_;
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const auto prefix = std::bit_cast<std::array<char, 8>>(detail::little_endian<std::uint64_t>(text.size()));

    std::ofstream file(path, std::ios::binary);
    file.write(prefix.data(), 8);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    if (!file.flush()) throw std::runtime_error("safetensors_writer: " + path.string() + " cannot be written");
  }

 private:
  template <class T>
  void append(T number) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(detail::little_endian(number));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  template <class T>
  void describe(const std::string& name, const std::vector<index_t>& shape, std::size_t begin) {
    header_[name] = {{"dtype", detail::row_of(detail::dtype_of<T>()).name},
                     {"shape", shape},
                     {"data_offsets", {begin, bytes_.size()}}};
  }

  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::vector<std::byte> bytes_;
};

}  // namespace ogive::testing
