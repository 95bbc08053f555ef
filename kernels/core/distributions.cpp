#include "kernels/core/distributions.h"

#include "kernels/core/check.h"

namespace tokenmill {

void Distributions::merge(const Distributions& other) {
  for (const auto& [name, member] : kDistributions) (this->*member).merge(other.*member);
}

std::string Distributions::serialize() const {
  std::string bytes;
  for (const auto& [name, member] : kDistributions) (this->*member).serialize(bytes);
  return bytes;
}

Distributions Distributions::deserialize(std::string_view bytes) {
  Distributions out;
  for (const auto& [name, member] : kDistributions) out.*member = Histogram::deserialize(bytes);
  TM_ASSERT(bytes.empty(), "{} bytes behind the distributions", bytes.size());
  return out;
}

}  // namespace tokenmill
