#include "jobs/index.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "io/byte_stream.h"
#include "io/file.h"
#include "kernels/core/check.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = size_t{1} << 20;
constexpr int64_t kMostRatio = 64;  // unpacked to packed bytes of text; more is possible

void check_input(const std::string& input) {
  const std::string path = io::split_record_path(input).file;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw Error(ErrorKind::kInput, "input {} does not exist", path);
  if (status.type() == fs::file_type::directory)
    throw Error(ErrorKind::kInput, "input {} is a directory; name its files, e.g. {}/*.jsonl", path, path);
  if (error) throw Error(ErrorKind::kInput, "input {} cannot be looked at: {}", path, error.message());
  if (!fs::is_regular_file(status))
    throw Error(
        ErrorKind::kInput,
        "input {} is {}; inputs are read more than once and by every rank, so write what it gives to a file first",
        path, io::kind_of_file(path));
}

/// Bytes of a packed file, counted up to one more than `most`.
int64_t unpacked_bytes(const std::string& path, int64_t most, const std::function<void()>& on_progress) {
  const auto stream = io::open_byte_stream(path);
  std::vector<std::byte> buffer(kCopyBytes);
  int64_t bytes = 0;
  while (bytes <= most) {
    const int64_t n = stream->read(buffer);
    if (n == 0) break;
    bytes += n;
    if (on_progress) on_progress();
  }
  return bytes;
}

/// Unpacks path into scratch_path, where there is room as far as that can be known.
void unpack(const std::string& path, const std::string& scratch_path, const std::function<void()>& on_progress) {
  const std::string directory = fs::path(scratch_path).parent_path().string();
  const auto free_bytes = static_cast<int64_t>(fs::space(directory).available);
  check_room_to_unpack(path, directory, free_bytes, on_progress);
  log::debug("unpacking {} to {}", path, scratch_path);
  const auto stream = io::open_byte_stream(path);
  io::FileWriter writer(io::File::create(scratch_path));
  std::vector<std::byte> buffer(kCopyBytes);
  try {
    while (const int64_t n = stream->read(buffer)) {
      writer.write({reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(n)});
      if (on_progress) on_progress();
    }
    writer.close();
  } catch (const Error& e) {
    std::error_code ignored;
    fs::remove(scratch_path, ignored);
    throw Error(e.kind(), "unpacking {} ({} bytes written, {} were free): {}", path, writer.offset(), free_bytes,
                e.what());
  }
}

std::string file_of(const InputFile& file) { return io::split_record_path(file.read_path).file; }

class Packer {
 public:
  void number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(static_cast<int64_t>(value.size()));
    bytes_ += value;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  /// A count of things of at least one byte each.
  size_t count() {
    const int64_t n = number();
    TM_ASSERT(n >= 0 && static_cast<size_t>(n) <= bytes_.size() - at_, "index bytes are cut off");
    return static_cast<size_t>(n);
  }
  std::string text() {
    const size_t size = count();
    return std::string(take(size), size);
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const char* take(size_t size) {
    TM_ASSERT(size <= bytes_.size() - at_, "index bytes are cut off");
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

}  // namespace

namespace {

/// Reader::skip for a caller that wants to see what is passed over.
int64_t visit(io::RecordReader& reader, int64_t count, int64_t first_row, const IndexOptions& options) {
  if (!options.on_record) return reader.skip(count);
  io::Record record;
  for (int64_t rows = 0; rows < count; ++rows) {
    const io::RecordPosition position = reader.position();
    if (!reader.next(record)) return rows;
    options.on_record({.row = first_row + rows, .position = position, .bytes = record.bytes});
  }
  return count;
}

}  // namespace

void Index::add_file(InputFile file, const IndexOptions& options) {
  const auto reader = io::open_records(file.read_path, options.reader);
  file.can_jump = reader->can_jump();
  file.first_row = num_rows_;
  file.bytes = static_cast<int64_t>(fs::file_size(file_of(file)));
  first_entry_.push_back(entries_.size());
  for (int64_t rows = kRowsPerEntry; rows == kRowsPerEntry;) {
    const io::RecordPosition position = reader->position();
    rows = visit(*reader, kRowsPerEntry, num_rows_, options);
    if (rows > 0) entries_.push_back(position);
    num_rows_ += rows;
    if (options.on_progress) options.on_progress();
  }
  files_.push_back(std::move(file));
}

Index::Place Index::locate(int64_t row) const {
  TM_ASSERT(row >= 0 && row < num_rows_, "row {} of {}", row, num_rows_);
  const auto after = std::upper_bound(files_.begin(), files_.end(), row,
                                      [](int64_t r, const InputFile& file) { return r < file.first_row; });
  Place place;
  place.file =
      static_cast<size_t>(after - files_.begin()) - 1;  // the last of several files that start here has the row
  const int64_t entry = (row - files_[place.file].first_row) / kRowsPerEntry;
  place.row = files_[place.file].first_row + entry * kRowsPerEntry;
  place.position = entries_[first_entry_[place.file] + static_cast<size_t>(entry)];
  return place;
}

void Index::relocate(const std::string& from_dir, const std::string& to_dir) {
  for (InputFile& file : files_)
    if (file.read_path != file.path && file.read_path.starts_with(from_dir + "/"))
      file.read_path = to_dir + file.read_path.substr(from_dir.size());
}

std::string Index::serialize() const {
  Packer packer;
  packer.number(num_rows_);
  packer.number(static_cast<int64_t>(files_.size()));
  for (size_t i = 0; i < files_.size(); ++i) {
    packer.text(files_[i].path);
    packer.text(files_[i].read_path);
    for (const int64_t value :
         {files_[i].bytes, files_[i].first_row, int64_t{files_[i].can_jump}, static_cast<int64_t>(first_entry_[i])})
      packer.number(value);
  }
  packer.number(static_cast<int64_t>(entries_.size()));
  for (const io::RecordPosition& entry : entries_) {
    packer.number(entry.offset);
    packer.number(entry.line);
  }
  return packer.take();
}

Index Index::deserialize(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Index index;
  index.num_rows_ = unpacker.number();
  index.files_.resize(unpacker.count());
  for (InputFile& file : index.files_) {
    file.path = unpacker.text();
    file.read_path = unpacker.text();
    file.bytes = unpacker.number();
    file.first_row = unpacker.number();
    file.can_jump = unpacker.number() != 0;
    index.first_entry_.push_back(static_cast<size_t>(unpacker.number()));
  }
  index.entries_.resize(unpacker.count());
  for (io::RecordPosition& entry : index.entries_) {
    entry.offset = unpacker.number();
    entry.line = unpacker.number();
  }
  TM_ASSERT(unpacker.at_end(), "bytes behind an index");
  return index;
}

void check_inputs(const std::vector<std::string>& inputs) {
  for (const std::string& path : inputs) check_input(path);
}

void check_room_to_unpack(const std::string& path, const std::string& directory, int64_t free_bytes,
                          const std::function<void()>& on_progress) {
  const auto packed_bytes = static_cast<int64_t>(fs::file_size(path));
  if (free_bytes / kMostRatio >= packed_bytes) return;
  const int64_t bytes = unpacked_bytes(path, free_bytes, on_progress);
  if (bytes <= free_bytes) return;
  throw Error(ErrorKind::kIo,
              "{} is packed ({} bytes) and must be unpacked to {}, where {} bytes are free, fewer than it has; free space "
              "there or choose another --output",
              path, packed_bytes, directory, free_bytes);
}

void Index::watch_files() {
  for (InputFile& file : files_) {
    check_as_indexed(file);
    file.changed_ns = io::time_of_change_ns(file_of(file));
  }
}

void check_as_indexed(const InputFile& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file_of(file), error);
  if (error || static_cast<int64_t>(bytes) != file.bytes)
    throw Error(ErrorKind::kIo,
                "{} {}, but had {} bytes when it was indexed; inputs must be the same files on all nodes and "
                "must not change while the job runs",
                file.read_path, error ? "cannot be found: " + error.message() : fmt::format("has {} bytes", bytes),
                file.bytes);
  if (file.changed_ns != 0 && io::time_of_change_ns(file_of(file)) != file.changed_ns)
    throw Error(ErrorKind::kIo,
                "{} was written to while the job ran; inputs must not change while it runs: rows may be of the old and "
                "of the new version. Give --restart to compute all of them from one",
                file.read_path);
}

Index build_index(const std::vector<std::string>& inputs, const IndexOptions& options) {
  check_inputs(inputs);
  Index index;
  for (size_t i = 0; i < inputs.size(); ++i) {
    InputFile file{.path = inputs[i], .read_path = inputs[i]};
    if (!options.scratch_dir.empty() && !io::open_records(inputs[i], options.reader)->can_jump()) {
      file.read_path = fmt::format("{}/{:05d}.jsonl", options.scratch_dir, i);
      unpack(inputs[i], file.read_path, options.on_progress);
    }
    index.add_file(std::move(file), options);
  }
  index.entries_.shrink_to_fit();
  return index;
}

}  // namespace tokenmill::jobs
