#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Files by POSIX descriptors: reads that never return short by accident, writes that never lose bytes silently.
/// Every function throws Error(kIo) whose text names the file, the action and the system's reason.
namespace tokenmill::io {

/// What one sequential read asks for: large enough for parallel file systems, small enough to overlap with work.
inline constexpr int64_t kReadChunkBytes = int64_t{8} << 20;

/// An open descriptor. Movable, closed by the destructor. One object may be read from several threads (preads only).
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Opens an existing file for reading. A directory is an error here, not at the first read.
  static File open_read(const std::string& path);
  /// Creates the file, or empties the existing one.
  static File create(const std::string& path);
  /// Creates the file; an existing one is an error.
  static File create_new(const std::string& path);
  /// Opens an existing file for writing; its contents stay.
  static File open_write(const std::string& path);
  /// Opens or creates the file for writing at its end.
  static File open_append(const std::string& path);
  /// Opens what is written in place, from its beginning: create(), but where path names a descriptor of this process
  /// (/dev/stdout, /dev/fd/3) that descriptor is duplicated. Opened anew, a log that standard output goes to would be
  /// emptied, and a socket could not be opened at all. A pipe must have a reader within seconds: no job waits for ever.
  static File create_in_place(const std::string& path);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  /// Bytes now in the file.
  int64_t size() const;
  /// False for pipes and terminals: they have no offsets.
  bool is_regular() const;

  /// Fills buffer from offset; returns fewer bytes than asked only at the end of the file.
  int64_t read_at(int64_t offset, std::span<std::byte> buffer) const;
  /// Fills buffer from offset; throws when the file ends before ("is cut off: ...").
  void read_exactly_at(int64_t offset, std::span<std::byte> buffer) const;
  /// Reads on from the descriptor's own position (pipes too); 0 means the end of the file.
  int64_t read_some(std::span<std::byte> buffer);
  /// Tells the kernel that [offset, offset + length) is read soon. Never fails.
  void will_need(int64_t offset, int64_t length) const;
  /// Tells the kernel that the file is read from front to back. Never fails.
  void will_read_sequentially() const;

  /// Writes all bytes at the descriptor's position; a short write (disk full, quota) throws.
  void write_all(std::string_view bytes);
  /// The same at offset; the descriptor's position stays.
  void write_all_at(int64_t offset, std::span<const std::byte> bytes);
  /// Cuts the file to `bytes` and moves the write position there.
  void truncate(int64_t bytes);
  /// fsync: contents and size are on stable storage.
  void sync();
  /// fdatasync: the same without times; cheaper for files that are appended to.
  void sync_data();
  /// Closes now and reports what close() reports (network file systems deliver write errors here).
  void close();

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static File open(const std::string& path, int flags, const char* action);
  static File open_pipe(const std::string& path);
  int fd_ = -1;
  std::string path_;
};

/// Whole contents of a file of at most max_bytes, or what a pipe gives until its end.
std::string read_file(const std::string& path, int64_t max_bytes);

/// When the file's contents were last changed, in nanoseconds since 1970.
int64_t time_of_change_ns(const std::string& path);

/// Makes a rename or a new name in `directory` durable.
void sync_directory(const std::string& directory);

/// Gives a file that is complete and synced its name, taking the place of one that has it, and makes that durable.
void rename_into_place(const std::string& temporary_path, const std::string& path);

/// Buffered writer at the end of a file. A failed write or flush leaves it unusable: every later call throws again, so
/// that an ENOSPC cannot be followed by a record with a hole before it.
class FileWriter {
 public:
  /// Takes over an open file; `offset` is where its write position stands.
  explicit FileWriter(File file, int64_t offset = 0, int64_t buffer_bytes = int64_t{1} << 20);
  /// Does not flush: bytes not flushed by then are lost (destructors do not throw). Call close().
  ~FileWriter() = default;
  FileWriter(FileWriter&&) = default;

  void write(std::string_view bytes);
  /// Hands everything buffered to the operating system.
  void flush();
  /// flush(), then fsync.
  void sync();
  /// flush(), then fdatasync.
  void sync_data();
  /// flush() and close.
  void close();
  /// Position behind the last byte given to write(), flushed or not.
  int64_t offset() const { return offset_; }
  const std::string& path() const { return file_.path(); }

 private:
  void check_usable() const;
  File file_;
  std::string buffer_;
  int64_t offset_;
  int64_t buffer_bytes_;
  bool failed_ = false;
};

/// "a file", "a directory", "a pipe", "a terminal or another device", ...: what stands at path, links followed, for
/// messages.
const char* kind_of_file(const std::string& path);

/// Throws Error(kIo) unless nothing or a regular file is at path itself: a file that is put there by renaming would take
/// a device, a pipe or a symbolic link away (even one to a regular file: /dev/stdout is such a link).
void check_replaceable(const std::string& path);

/// Writes a file that is either complete or absent: bytes go to "<path>.tmp.<process id>", commit() syncs it, renames
/// it to path and syncs the directory. Without commit() the temporary is removed and an older file at path stays as it
/// was. Throws Error(kIo) where check_replaceable() does.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::string_view bytes) { writer_.write(bytes); }
  int64_t offset() const { return writer_.offset(); }
  void commit();

 private:
  std::string path_;
  std::string temporary_path_;
  FileWriter writer_;
  bool committed_ = false;
};

/// AtomicFile in one call.
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace tokenmill::io
