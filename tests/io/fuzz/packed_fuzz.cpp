// Any bytes as a packed file: text or Error(kIo), the same for small and large reads.
#include <vector>

#include "io/byte_stream.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

namespace {
constexpr size_t kMaxUnpacked = 4 << 20;

/// The text up to kMaxUnpacked, and whether it ended in an error.
std::pair<std::string, bool> unpack(const std::string& path, size_t piece) {
  std::string text;
  try {
    const auto stream = io::open_byte_stream(path);
    std::vector<std::byte> buffer(piece);
    while (text.size() < kMaxUnpacked) {
      const int64_t n = stream->read(buffer);
      test::promise(n >= 0 && n <= static_cast<int64_t>(piece), "a read stays inside its buffer");
      if (n == 0) return {text, false};
      text.append(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(n));
    }
  } catch (const Error& error) {
    test::promise(error.kind() == ErrorKind::kIo, "damaged data is an io error");
    return {text, true};
  }
  return {text, false};
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const test::MemoryFile file(test::as_text(data, size));
  const auto [large, large_failed] = unpack(file.path(), 1 << 20);
  const auto [small, small_failed] = unpack(file.path(), 777);
  test::promise(large_failed == small_failed || large.size() >= kMaxUnpacked || small.size() >= kMaxUnpacked,
                "an error does not depend on the size of reads");
  const size_t common = std::min(large.size(), small.size());
  test::promise(large.compare(0, common, small, 0, common) == 0, "text does not depend on the size of reads");
  return 0;
}
