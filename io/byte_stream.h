#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tokenmill::io {

/// Bytes from front to back, whatever they are packed in. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills the front of a non-empty buffer and returns how many bytes it holds now; 0 means the end. May return fewer
  /// than asked before the end. Throws Error(kIo) naming the file when the data is damaged or cut off.
  virtual int64_t read(std::span<std::byte> buffer) = 0;
  /// Goes on at `offset` (in unpacked bytes). Plain files jump; packed ones read on, from the start when offset lies
  /// behind. Beyond the end the next read() returns 0.
  virtual void seek(int64_t offset) = 0;
  /// True when seek() costs nothing.
  virtual bool can_jump() const = 0;
  /// The file, for messages.
  virtual const std::string& path() const = 0;
};

/// Opens a file as a stream. The first bytes decide, not the name: gzip (any number of members), zstd (any number of
/// frames), everything else as it is. Throws Error(kIo) for what cannot be opened or has no fixed contents (a pipe).
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

}  // namespace tokenmill::io
