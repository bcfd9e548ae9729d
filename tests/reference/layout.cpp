#include <ogive/reference/layout.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

struct packed {
  integers lengths{}, offsets{};
};
struct padded {
  integers lengths{};
};

template <class Op>
std::vector<std::vector<index_t>> sequences(const Op& op, index_t batch, index_t length) {
  std::vector<std::vector<index_t>> all;
  for (const auto& s : reference::sequences(op, batch, length)) all.push_back({s.batch, s.begin, s.end, s.live});
  return all;
}

using rows = std::vector<std::vector<index_t>>;

}  // namespace

TEST_CASE("every sequence has the length that is given for it") {
  const std::vector<std::int32_t> lengths{3, 0, 9};
  const std::vector<std::int64_t> offsets{0, 4, 4, 10};
  CHECK(sequences(padded{}, 3, 7) == rows{{0, 0, 7, 7}, {1, 0, 7, 7}, {2, 0, 7, 7}});
  CHECK(sequences(padded{lengths}, 3, 7) == rows{{0, 0, 7, 3}, {1, 0, 7, 0}, {2, 0, 7, 7}});
  CHECK(sequences(packed{lengths, {}}, 3, 7) == rows{{0, 0, 7, 3}, {1, 0, 7, 0}, {2, 0, 7, 7}});
  CHECK(sequences(packed{{}, offsets}, 1, 10) == rows{{0, 0, 4, 4}, {0, 4, 4, 4}, {0, 4, 10, 10}});
  CHECK(sequences(packed{lengths, offsets}, 1, 10) == rows{{0, 0, 4, 3}, {0, 4, 4, 4}, {0, 4, 10, 10}});
  const std::vector<std::int32_t> cut{1, 0, 2};
  CHECK(sequences(packed{cut, offsets}, 1, 10) == rows{{0, 0, 4, 1}, {0, 4, 4, 4}, {0, 4, 10, 6}});
}
