#pragma once
#include <string>

#include "engine/models/weights.h"

namespace tokenmill::app {

/// "1024 bytes, 0123456789abcdef": size and a hash. A file up to 16 MiB is hashed whole. Of a longer one 2.5 MiB are:
/// its beginning (front_bytes where these are more than 1 MiB), its last 1 MiB, and 32 samples of 16 KiB spread evenly
/// between them: enough to tell versions of a checkpoint apart, not to notice a few bytes that are wrong. Times do not
/// count, copies of a file have others. Throws Error(kIo).
std::string file_digest(const std::string& path, int64_t front_bytes = 0);

/// Tells checkpoints apart that differ in any tensor, also by a little in all places, without reading them whole: a
/// hash over the digests of the files and 16 KiB from the middle of each tensor. Names of files do not count. Throws
/// Error(kIo).
std::string checkpoint_digest(const WeightCatalog& weights);

}  // namespace tokenmill::app
