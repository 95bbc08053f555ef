#pragma once
#include <string>

#include "engine/models/weights.h"

namespace tokenmill::app {

/// "1024 bytes, 0123456789abcdef": size, and a hash of the beginning and end: enough to tell versions of a file apart
/// without reading it twice. Throws Error(kIo).
std::string file_digest(const std::string& path);

/// Tells checkpoints apart that differ in any tensor, also by a little in all places, without reading them whole: a
/// hash over the digests of the files and 16 KiB from the middle of each tensor. Names of files do not count. Throws
/// Error(kIo).
std::string checkpoint_digest(const WeightCatalog& weights);

}  // namespace tokenmill::app
