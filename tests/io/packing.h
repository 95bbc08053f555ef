#pragma once
#include <zlib.h>
#include <zstd.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_stream.h"

namespace tokenmill::test {

/// One gzip member.
inline std::string gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::runtime_error("deflate");
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// One zstd frame with a checksum.
inline std::string zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);  // streamed frames keep the window asked for
  if (window_log) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer from{text.data(), text.size() / 2, 0};  // in two pieces: the size is unknown at the start
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue);
  from.size = text.size();
  const size_t left = ZSTD_compressStream2(context, &to, &from, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  if (left != 0) throw std::runtime_error("zstd");
  out.resize(to.pos);
  return out;
}

/// Everything a stream delivers, asked for in pieces of `piece` bytes.
inline std::string drain(io::ByteStream& stream, size_t piece = 1000) {
  std::string out;
  std::vector<std::byte> buffer(piece);
  while (const int64_t n = stream.read(buffer))
    out.append(reinterpret_cast<char*>(buffer.data()), static_cast<size_t>(n));
  return out;
}

}  // namespace tokenmill::test
