#pragma once
#include <cstdint>
#include <string>

namespace tokenmill::io {

/// "1024 bytes, 0123456789abcdef": size and a hash. A file up to 16 MiB is hashed whole. Of a longer one 2.5 MiB are:
/// its beginning (front_bytes where these are more than 1 MiB), its last 1 MiB, and 32 samples of 16 KiB spread evenly
/// between them: enough to tell versions of a large file apart, not to notice a few bytes that are wrong. Times do not
/// count, copies of a file have others. Throws Error(kIo).
std::string file_digest(const std::string& path, int64_t front_bytes = 0);

}  // namespace tokenmill::io
