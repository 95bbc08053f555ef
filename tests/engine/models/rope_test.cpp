#include "engine/models/rope.h"

#include <doctest/doctest.h>

#include <array>

namespace tokenmill {
namespace {

RopeConfig yarn() {
  RopeConfig c;
  c.kind = RopeConfig::Kind::kYarn;
  c.theta = 10000;
  c.rotary_dim = 16;
  c.factor = 16;
  c.original_max_positions = 64;
  return c;
}

TEST_CASE("yarn blends interpolated and original frequencies") {
  const std::array<double, 8> want = {1,        0.217406571,    0.0375,   0.00197642366,
                                      0.000625, 0.000197642366, 6.25e-05, 1.97642366e-05};
  const RopeFrequencies got = rope_frequencies(yarn(), 1024);
  REQUIRE(got.inv_freq.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(got.inv_freq[i] == doctest::Approx(want[i]).epsilon(1e-6));
}

TEST_CASE("yarn's multiplier follows mscale, mscale_all_dim and attention_factor") {
  RopeConfig c = yarn();
  const auto multiplier = [&] { return rope_frequencies(c, 1024).multiplier; };
  CHECK(multiplier() == doctest::Approx(1.2772588722).epsilon(1e-6));
  c.mscale = 1;
  c.mscale_all_dim = 1;
  CHECK(multiplier() == doctest::Approx(1).epsilon(1e-6));
  c.mscale_all_dim = 0.707;
  CHECK(multiplier() == doctest::Approx(1.0679225366).epsilon(1e-6));
  c.mscale = 0.707;
  c.mscale_all_dim = 0;
  CHECK(multiplier() == doctest::Approx(1.2772588722).epsilon(1e-6));
  c.attention_factor = 1.5;
  CHECK(multiplier() == doctest::Approx(1.5).epsilon(1e-6));
}

TEST_CASE("linear divides, dynamic depends on the job's max_model_len only, llama3 keeps short wavelengths") {
  RopeConfig c;
  c.rotary_dim = 16;
  const RopeFrequencies plain = rope_frequencies(c, 64);
  CHECK(plain.multiplier == 1);
  c.kind = RopeConfig::Kind::kLinear;
  c.factor = 4;
  for (size_t i = 0; i < 8; ++i) {
    CHECK(rope_frequencies(c, 64).inv_freq[i] == doctest::Approx(plain.inv_freq[i] / 4).epsilon(1e-6));
  }
  c.kind = RopeConfig::Kind::kDynamic;
  c.original_max_positions = 64;
  CHECK(rope_frequencies(c, 64).inv_freq == plain.inv_freq);   // not longer than trained: unchanged
  CHECK(rope_frequencies(c, 16).inv_freq == plain.inv_freq);
  CHECK(rope_frequencies(c, 128).inv_freq[7] < plain.inv_freq[7]);
  c.kind = RopeConfig::Kind::kLlama3;
  c.factor = 8;
  const RopeFrequencies llama3 = rope_frequencies(c, 64);
  CHECK(llama3.inv_freq[0] == plain.inv_freq[0]);
  CHECK(llama3.inv_freq[7] == doctest::Approx(plain.inv_freq[7] / 8).epsilon(1e-6));
}

}  // namespace
}  // namespace tokenmill
