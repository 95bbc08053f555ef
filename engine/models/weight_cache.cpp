// A file: Header, identity, one XXH3 per chunk of the payload, zeros up to a multiple of kAlignment, payload.
#include "engine/models/weight_cache.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

#include "io/file.h"
#include "io/temporaries.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'M', 'W', 'E', 'I', 'G', 'H', 'T'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kChunkBytes = int64_t{8} << 20;
constexpr int64_t kAlignment = 4096;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t identity_bytes;
  int64_t payload_bytes;
  uint64_t digest;  ///< of all in front of the payload, this field as zero
};
static_assert(sizeof(Header) == 32 && std::endian::native == std::endian::little);

uint64_t digest(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::span<const std::byte> chunk_of(std::span<const std::byte> payload, int64_t chunk) {
  const auto begin = static_cast<size_t>(chunk * kChunkBytes);
  return payload.subspan(begin, std::min(static_cast<size_t>(kChunkBytes), payload.size() - begin));
}

int64_t num_chunks(size_t payload_bytes) {
  return (static_cast<int64_t>(payload_bytes) + kChunkBytes - 1) / kChunkBytes;
}

/// Bytes in front of the payload.
int64_t front_bytes(const std::string& identity, size_t payload_bytes) {
  const int64_t bytes = static_cast<int64_t>(sizeof(Header) + identity.size()) + 8 * num_chunks(payload_bytes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// What the front must be, but for the chunks' digests when they are not known yet.
std::string make_front(const std::string& identity, std::span<const uint64_t> chunk_digests, size_t payload_bytes) {
  Header header{{}, kVersion, static_cast<uint32_t>(identity.size()), static_cast<int64_t>(payload_bytes), 0};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  std::string front(reinterpret_cast<const char*>(&header), sizeof header);
  front += identity;
  front.append(reinterpret_cast<const char*>(chunk_digests.data()), chunk_digests.size_bytes());
  front.resize(static_cast<size_t>(front_bytes(identity, payload_bytes)));
  header.digest = digest(std::as_bytes(std::span(front)));
  std::memcpy(front.data(), &header, sizeof header);
  return front;
}

/// Throws Error(kIo) saying what is wrong with a file, else returns the digests of its chunks.
std::vector<uint64_t> check_front(const io::File& file, const std::string& identity, size_t payload_bytes) {
  const std::string& path = file.path();
  const auto refuse = [&](const std::string& reason) -> Error { return {ErrorKind::kIo, "{}: {}", path, reason}; };
  Header header{};
  if (file.read_at(0, std::as_writable_bytes(std::span(&header, 1))) < static_cast<int64_t>(sizeof header) ||
      !std::equal(std::begin(kMagic), std::end(kMagic), header.magic))
    throw refuse("holds no packed weights");
  if (header.version != kVersion)
    throw refuse(
        fmt::format("has format version {}, this program keeps weights in version {}", header.version, kVersion));
  if (header.identity_bytes != identity.size() || header.payload_bytes != static_cast<int64_t>(payload_bytes))
    throw refuse("holds weights of another model, layout or share");
  const int64_t front = front_bytes(identity, payload_bytes), wanted = front + static_cast<int64_t>(payload_bytes);
  if (file.size() != wanted) throw refuse(fmt::format("has {} bytes instead of {}", file.size(), wanted));

  std::string found(static_cast<size_t>(front), '\0');
  file.read_exactly_at(0, std::as_writable_bytes(std::span(found)));
  if (found.compare(sizeof header, identity.size(), identity) != 0)
    throw refuse("holds weights of another model, layout or share");
  std::vector<uint64_t> digests(static_cast<size_t>(num_chunks(payload_bytes)));
  std::memcpy(digests.data(), found.data() + sizeof header + identity.size(), 8 * digests.size());
  if (found != make_front(identity, digests, payload_bytes)) throw refuse("is damaged in its header");
  return digests;
}

void read_payload(const io::File& file, const std::string& identity, std::span<const uint64_t> digests,
                  std::span<std::byte> storage) {
  const int64_t front = front_bytes(identity, storage.size());
  for (int64_t chunk = 0; chunk < static_cast<int64_t>(digests.size()); ++chunk) {
    const auto bytes = storage.subspan(static_cast<size_t>(chunk * kChunkBytes), chunk_of(storage, chunk).size());
    const int64_t offset = front + chunk * kChunkBytes;
    file.will_need(offset + kChunkBytes, kChunkBytes);
    file.read_exactly_at(offset, bytes);
    if (digest(bytes) != digests[static_cast<size_t>(chunk)])
      throw Error(ErrorKind::kIo, "{}: is damaged between bytes {} and {}", file.path(), offset,
                  offset + static_cast<int64_t>(bytes.size()));
  }
}

void make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path, error))
    throw Error(ErrorKind::kIo, "{} cannot be made a directory: {}; name one on a disk of this node", path,
                error ? error.message() : "something else has its name");
}

void check_room(const std::string& directory, const std::string& path, int64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error) throw Error(ErrorKind::kIo, "{}: cannot tell how many bytes are free: {}", directory, error.message());
  const auto available = static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
  if (available < needed) throw Error(ErrorKind::kIo, "{}: needs {} bytes, {} are free there", path, needed, available);
}

}  // namespace

std::string WeightCache::path_of(const std::string& identity) const {
  const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
  return fmt::format("{}/{:016x}{:016x}.weights", directory_, hash.high64, hash.low64);
}

bool WeightCache::load(const std::string& identity, std::span<std::byte> storage) const {
  const std::string path = path_of(identity);
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status)) return false;
  bool is_touched = false;
  try {
    // Opening a pipe would wait for its writer.
    if (!fs::is_regular_file(status)) throw Error(ErrorKind::kIo, "{}: is no regular file", path);
    const io::File file = io::File::open_read(path);
    const std::vector<uint64_t> digests = check_front(file, identity, storage.size());
    is_touched = true;
    read_payload(file, identity, digests, storage);
    return true;
  } catch (const Error& error) {
    log::warning("--weight-cache: {}; the weights are read from the checkpoint instead", error.what());
    if (is_touched) std::fill(storage.begin(), storage.end(), std::byte{0});
    return false;
  }
}

bool WeightCache::store(const std::string& identity, std::span<const std::byte> storage) const {
  const std::string path = path_of(identity);
  try {
    make_directory(directory_);
    io::remove_abandoned_temporaries(path);
    check_room(directory_, path, front_bytes(identity, storage.size()) + static_cast<int64_t>(storage.size()));
    std::vector<uint64_t> digests;
    for (int64_t chunk = 0; chunk < num_chunks(storage.size()); ++chunk)
      digests.push_back(digest(chunk_of(storage, chunk)));
    io::AtomicFile file(path);
    file.write(make_front(identity, digests, storage.size()));
    for (int64_t chunk = 0; chunk < num_chunks(storage.size()); ++chunk) {
      const std::span<const std::byte> bytes = chunk_of(storage, chunk);
      file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    file.commit();
    return true;
  } catch (const Error& error) {
    log::warning("--weight-cache: {}; the packed weights are not kept", error.what());
    return false;
  }
}

}  // namespace tokenmill
