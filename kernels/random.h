#pragma once
#include <cstdint>

#include "kernels/core/host_device.h"

namespace tokenmill {

/// Philox4x32-10: four random words from a 128-bit counter and a 64-bit key; no state, the same on every device.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
struct Philox {
  struct Words {
    uint32_t word[4];
  };

  static TM_HOST_DEVICE inline Words generate(Words counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = 0xD2511F53ull * counter.word[0];
      const uint64_t product1 = 0xCD9E8D57ull * counter.word[2];
      counter =
          Words{{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
                 static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    return counter;
  }
};

/// The one uniform of a sequence at an absolute position: a multiple of 2^-53 strictly between 0 and 1.
/// Counter (position low, position high, 0, 0), key (key low, key high); the first two words, word 1 above word 0, give
/// 52 bits b and the value (b + 1/2) / 2^52.
TM_HOST_DEVICE inline double uniform(uint64_t key, int64_t position) {
  const auto p = static_cast<uint64_t>(position);
  const Philox::Words random =
      Philox::generate(Philox::Words{{static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, 0}},
                       static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  const uint64_t bits = (static_cast<uint64_t>(random.word[1]) << 32 | random.word[0]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace tokenmill
