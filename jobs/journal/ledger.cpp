#include "jobs/journal/ledger.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

static_assert(std::endian::native == std::endian::little, "ledgers are little-endian; swap bytes here");

constexpr char kMagic[8] = {'T', 'M', 'L', 'E', 'D', 'G', 'E', 'R'};
constexpr uint32_t kVersion = 2;
constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kEntryBytes = 48;
constexpr uint32_t kFailedFlag = 1, kPartialFlag = 2;  // of an entry
constexpr uint32_t kSyncedFlag = 1;                    // of the file

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t entry_bytes;
  uint32_t flags;
  uint8_t reserved[32];
  uint64_t checksum;  // XXH3 of the bytes before it
};
static_assert(sizeof(Header) == kHeaderBytes);

struct Packed {
  int64_t row, offset, length;
  uint64_t record_digest, row_digest;
  uint32_t flags;
  uint32_t checksum;  // low half of XXH3 of the bytes before it, seeded with the entry's index
};
static_assert(sizeof(Packed) == kEntryBytes);

uint32_t entry_checksum(const Packed& packed, int64_t index) {
  return static_cast<uint32_t>(XXH3_64bits_withSeed(&packed, offsetof(Packed, checksum), static_cast<uint64_t>(index)));
}

bool unpack(const Packed& packed, int64_t index, LedgerEntry& entry) {
  if (packed.checksum != entry_checksum(packed, index)) return false;
  entry = {.row = packed.row,
           .offset = packed.offset,
           .length = packed.length,
           .record_digest = packed.record_digest,
           .row_digest = packed.row_digest,
           .failed = (packed.flags & kFailedFlag) != 0,
           .partial = (packed.flags & kPartialFlag) != 0};
  return true;
}

int64_t entry_offset(int64_t index) { return kHeaderBytes + index * kEntryBytes; }

}  // namespace

uint64_t digest(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

int64_t ledger_bytes(int64_t num_entries) { return entry_offset(num_entries); }

LedgerWriter::LedgerWriter(const std::string& path, bool synced)
    : writer_(io::File::create_new(path), /*offset=*/0, kHeaderBytes + (kMaxUnflushed + 1) * kEntryBytes) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.header_bytes = kHeaderBytes;
  header.entry_bytes = kEntryBytes;
  header.flags = synced ? kSyncedFlag : 0;
  header.checksum = XXH3_64bits(&header, offsetof(Header, checksum));
  writer_.write({reinterpret_cast<const char*>(&header), sizeof header});
}

void LedgerWriter::append(const LedgerEntry& entry) {
  Packed packed{.row = entry.row,
                .offset = entry.offset,
                .length = entry.length,
                .record_digest = entry.record_digest,
                .row_digest = entry.row_digest,
                .flags = (entry.failed ? kFailedFlag : 0) | (entry.partial ? kPartialFlag : 0),
                .checksum = 0};
  TM_ASSERT(num_unflushed_++ < kMaxUnflushed);
  packed.checksum = entry_checksum(packed, num_entries_++);
  writer_.write({reinterpret_cast<const char*>(&packed), sizeof packed});
}

void LedgerWriter::flush() {
  writer_.flush();
  num_unflushed_ = 0;
}

void LedgerWriter::sync_data() {
  writer_.sync_data();
  num_unflushed_ = 0;
}

LedgerReader::LedgerReader(const std::string& path) : file_(io::File::open_read(path)) {
  const int64_t size = file_.size();
  Header header{};
  if (size < kHeaderBytes) {  // the writer was stopped before its first flush
    torn_bytes_ = size;
    return;
  }
  file_.read_exactly_at(0, std::as_writable_bytes(std::span(&header, 1)));
  constexpr Header kNothing{};
  if (size <= ledger_bytes(LedgerWriter::kMaxUnflushed) && std::memcmp(&header, &kNothing, sizeof header) == 0) {
    torn_bytes_ = size;  // the machine was lost with the first flush, and its first page
    return;
  }
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    throw Error(ErrorKind::kIo, "{} is not a ledger of tokenmill", path);
  if (header.checksum != XXH3_64bits(&header, offsetof(Header, checksum)))
    throw Error(ErrorKind::kIo, "{}: the header is damaged (its checksum does not match)", path);
  if (header.version != kVersion || header.header_bytes != kHeaderBytes || header.entry_bytes != kEntryBytes)
    throw Error(ErrorKind::kIo, "{}: version {} with entries of {} bytes; this tokenmill reads version {}", path,
                header.version, header.entry_bytes, kVersion);
  synced_ = (header.flags & kSyncedFlag) != 0;
  num_entries_ = find_torn((size - kHeaderBytes) / kEntryBytes);
  torn_bytes_ = size - entry_offset(num_entries_);
}

/// The first bad entry among those that the last flush may have left, or whole_entries.
int64_t LedgerReader::find_torn(int64_t whole_entries) const {
  const int64_t first = std::max<int64_t>(0, whole_entries - LedgerWriter::kMaxUnflushed);
  std::vector<Packed> last(static_cast<size_t>(whole_entries - first));
  file_.read_exactly_at(entry_offset(first), std::as_writable_bytes(std::span(last)));
  LedgerEntry entry;
  for (int64_t index = first; index < whole_entries; ++index)
    if (!unpack(last[static_cast<size_t>(index - first)], index, entry)) return index;
  return whole_entries;
}

void LedgerReader::read(int64_t first, std::span<LedgerEntry> entries) const {
  const auto count = static_cast<int64_t>(entries.size());
  TM_ASSERT(first >= 0 && first + count <= num_entries_);
  std::vector<Packed> packed(static_cast<size_t>(std::min(count, kReadEntries)));
  for (int64_t done = 0; done < count;) {
    const auto batch = std::span(packed).first(static_cast<size_t>(std::min(count - done, kReadEntries)));
    file_.read_exactly_at(entry_offset(first + done), std::as_writable_bytes(batch));
    for (const Packed& one : batch) {
      if (!unpack(one, first + done, entries[static_cast<size_t>(done)]))
        throw Error(ErrorKind::kIo, "{}: entry {} of {} is damaged (its checksum does not match)", path(), first + done,
                    num_entries_);
      ++done;
    }
  }
}

}  // namespace tokenmill::jobs
