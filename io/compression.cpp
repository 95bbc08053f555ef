#include "io/compression.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

constexpr size_t kInputBytes = size_t{64} << 10;

/// What gzip and zstd share: the packed input and seeking by reading on.
class PackedStream : public ByteStream {
 public:
  explicit PackedStream(File file) : file_(std::move(file)), input_(kInputBytes) { file_.will_read_sequentially(); }

  int64_t read(std::span<std::byte> buffer) final {
    const int64_t n = unpack(buffer);
    unpacked_ += n;
    return n;
  }

  void seek(int64_t offset) final {
    if (offset < unpacked_) {
      packed_ = 0;
      begin_ = end_ = 0;
      unpacked_ = 0;
      restart();
    }
    std::vector<std::byte> discarded(kInputBytes);
    while (unpacked_ < offset) {
      const auto want = std::min<int64_t>(offset - unpacked_, static_cast<int64_t>(discarded.size()));
      if (read(std::span(discarded).first(static_cast<size_t>(want))) == 0) return;
    }
  }

  bool can_jump() const final { return false; }
  const std::string& path() const final { return file_.path(); }

 protected:
  virtual int64_t unpack(std::span<std::byte> buffer) = 0;
  virtual void restart() = 0;

  /// Makes the input non-empty; false at the end of the file.
  bool fill() {
    if (begin_ < end_) return true;
    const int64_t n = file_.read_at(packed_, input_);
    packed_ += n;
    begin_ = 0;
    end_ = static_cast<size_t>(n);
    return n > 0;
  }
  std::span<std::byte> input() { return std::span(input_).subspan(begin_, end_ - begin_); }
  void consume(size_t bytes) { begin_ += bytes; }

  [[noreturn]] void fail(const char* format, const char* found) const {
    throw Error(ErrorKind::kIo, "{}: {} data is damaged near byte {} of the file: {}; make or copy the file again",
                path(), format, packed_ - static_cast<int64_t>(end_ - begin_), found);
  }

 private:
  File file_;
  std::vector<std::byte> input_;
  size_t begin_ = 0;  // input_[begin_, end_) is not consumed yet
  size_t end_ = 0;
  int64_t packed_ = 0;    // bytes read from the file
  int64_t unpacked_ = 0;  // bytes delivered
};

class GzipStream final : public PackedStream {
 public:
  explicit GzipStream(File file) : PackedStream(std::move(file)) {
    if (inflateInit2(&inflate_, 15 + 16) != Z_OK)  // 15: largest window; 16: gzip wrapper only
      throw Error(ErrorKind::kInternal, "{}: zlib's inflateInit2 failed", path());
  }
  ~GzipStream() override { inflateEnd(&inflate_); }

 private:
  void restart() override {
    inflateReset(&inflate_);
    in_member_ = false;
    members_ = 0;
  }

  int64_t unpack(std::span<std::byte> buffer) override {
    const auto capacity = static_cast<uInt>(std::min<size_t>(buffer.size(), size_t{1} << 30));
    inflate_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    inflate_.avail_out = capacity;
    while (inflate_.avail_out == capacity) {
      if (!in_member_ && !begin_member()) return 0;
      inflate_step();
    }
    return capacity - inflate_.avail_out;
  }

  void inflate_step() {
    if (!fill()) fail("gzip", "the file ends inside a member");
    const std::span<std::byte> in = input();
    inflate_.next_in = reinterpret_cast<Bytef*>(in.data());
    inflate_.avail_in = static_cast<uInt>(in.size());
    const int result = ::inflate(&inflate_, Z_NO_FLUSH);
    consume(in.size() - inflate_.avail_in);
    if (result == Z_STREAM_END) {
      inflateReset(&inflate_);
      in_member_ = false;
      ++members_;
    } else if (result == Z_MEM_ERROR) {
      throw Error(ErrorKind::kDevice, "{}: out of memory while unpacking", path());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail("gzip", inflate_.msg ? inflate_.msg : "invalid data");
    }
  }

  /// True at a further member, false at the end. Only zeros may stand behind the last one.
  bool begin_member() {
    if (!fill()) return false;
    if (members_ > 0 && input()[0] == std::byte{0}) {
      while (fill()) {
        const std::span<std::byte> in = input();
        const auto other = std::find_if(in.begin(), in.end(), [](std::byte b) { return b != std::byte{0}; });
        consume(static_cast<size_t>(other - in.begin()));
        if (other != in.end()) fail("gzip", "bytes that belong to no member");
      }
      return false;
    }
    in_member_ = true;
    return true;
  }

  z_stream inflate_{};
  bool in_member_ = false;
  int64_t members_ = 0;
};

class ZstdStream final : public PackedStream {
 public:
  explicit ZstdStream(File file) : PackedStream(std::move(file)), context_(ZSTD_createDCtx()) {
    if (!context_) throw Error(ErrorKind::kDevice, "{}: out of memory while opening a zstd stream", path());
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  ~ZstdStream() override { ZSTD_freeDCtx(context_); }

 private:
  static constexpr int kMaxWindowLog = 27;

  void restart() override {
    ZSTD_DCtx_reset(context_, ZSTD_reset_session_only);
    in_frame_ = false;
  }

  int64_t unpack(std::span<std::byte> buffer) override {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos == 0) {
      const bool more = fill();
      if (!more && !in_frame_) return 0;
      const std::span<std::byte> packed = input();
      ZSTD_inBuffer in{packed.data(), packed.size(), 0};
      const size_t result = ZSTD_decompressStream(context_, &out, &in);
      consume(in.pos);
      if (ZSTD_isError(result)) fail("zstd", ZSTD_getErrorName(result));
      in_frame_ = result != 0;
      if (!more && in_frame_ && out.pos == 0) fail("zstd", "the file ends inside a frame");
    }
    return static_cast<int64_t>(out.pos);
  }

  ZSTD_DCtx* context_;
  bool in_frame_ = false;  // the frame has more to give, or its end has not been read
};

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(File file) : file_(std::move(file)) { file_.will_read_sequentially(); }
  int64_t read(std::span<std::byte> buffer) override {
    const int64_t n = file_.read_at(offset_, buffer);
    offset_ += n;
    return n;
  }
  void seek(int64_t offset) override { offset_ = offset; }
  bool can_jump() const override { return true; }
  const std::string& path() const override { return file_.path(); }

 private:
  File file_;
  int64_t offset_ = 0;
};

bool starts_with(std::span<const std::byte> bytes, std::initializer_list<unsigned char> magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.begin(), magic.size()) == 0;
}

}  // namespace

std::unique_ptr<ByteStream> open_gzip(File file) { return std::make_unique<GzipStream>(std::move(file)); }
std::unique_ptr<ByteStream> open_zstd(File file) { return std::make_unique<ZstdStream>(std::move(file)); }

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  File file = File::open_read(path);
  if (!file.is_regular())
    throw Error(ErrorKind::kIo,
                "{}: is a pipe or a device; its rows could not be read a second time: copy it to a file", path);
  std::array<std::byte, 4> first;
  const std::span<const std::byte> magic(first.data(), static_cast<size_t>(file.read_at(0, first)));
  if (starts_with(magic, {0x1f, 0x8b})) return open_gzip(std::move(file));
  const bool skippable = magic.size() == 4 && (std::to_integer<int>(magic[0]) & 0xf0) == 0x50 &&
                         starts_with(magic.subspan(1), {0x2a, 0x4d, 0x18});
  if (skippable || starts_with(magic, {0x28, 0xb5, 0x2f, 0xfd})) return open_zstd(std::move(file));
  return std::make_unique<PlainStream>(std::move(file));
}

}  // namespace tokenmill::io
