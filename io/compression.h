#pragma once
#include <memory>

#include "io/byte_stream.h"
#include "io/file.h"

/// Packed files as byte streams with bounded memory: a 64 KiB input buffer and the format's window.
namespace tokenmill::io {

/// gzip, RFC 1952: all members in order, empty ones too; every member's checksum and length are verified. Zero bytes
/// after the last member (padding of tapes and archives) are ignored, anything else there is an error.
std::unique_ptr<ByteStream> open_gzip(File file);

/// zstd, RFC 8878: all frames in order, skippable ones skipped, checksums verified where frames have them. Frames whose
/// window exceeds 128 MiB (zstd --long=28 and up) are refused.
std::unique_ptr<ByteStream> open_zstd(File file);

}  // namespace tokenmill::io
