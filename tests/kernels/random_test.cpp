#include "kernels/random.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace tokenmill;

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  struct Known {
    Philox::Words counter;
    uint32_t key0, key1;
    Philox::Words want;
  };
  const Known known[] = {
      {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}}},
      {{{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}},
       0xffffffffu,
       0xffffffffu,
       {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}}},
      {{{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
       0xa4093822u,
       0x299f31d0u,
       {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}}},
  };
  for (const Known& k : known) {
    const Philox::Words got = Philox::generate(k.counter, k.key0, k.key1);
    for (int i = 0; i < 4; ++i) CHECK_EQ(got.word[i], k.want.word[i]);
  }
}

TEST_CASE("uniform is built from the first two words and lies strictly inside (0, 1)") {
  const uint64_t bits = (uint64_t{0xe169c58du} << 32 | 0x6627e8d5u) >> 12;
  CHECK_EQ(uniform(0, 0), (static_cast<double>(bits) + 0.5) / 4503599627370496.0);
  CHECK_NE(uniform(1, 0), uniform(0, 0));
  CHECK_NE(uniform(uint64_t{1} << 63, 0), uniform(0, 0));
  CHECK_NE(uniform(0, int64_t{1} << 40), uniform(0, 0));
  CHECK_NE(uniform(5, -1), uniform(5, 1));
  double low = 1, high = 0, sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const double u = uniform(42, i);
    low = std::min(low, u);
    high = std::max(high, u);
    sum += u;
  }
  CHECK(low > 0);
  CHECK(high < 1);
  CHECK(sum / 20000 == doctest::Approx(0.5).epsilon(0.01));
}

TEST_CASE("the largest and the smallest uniform are not 0 or 1") {
  constexpr uint64_t kMost = (uint64_t{1} << 52) - 1;
  CHECK((static_cast<double>(kMost) + 0.5) * 0x1p-52 < 1.0);
  CHECK((0.0 + 0.5) * 0x1p-52 > 0.0);
}
