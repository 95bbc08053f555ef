#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  throw Error(ErrorKind::kIo, "{}: cannot {}: {} (errno {})", path, action, std::strerror(error), error);
}

struct stat stat_of(int fd, const std::string& path) {
  struct stat status;
  if (::fstat(fd, &status) != 0) fail(path, "stat", errno);
  return status;
}

/// The descriptor of this process that path names (through links, as /dev/stdout does), or -1.
int own_descriptor(std::string path) {
  namespace fs = std::filesystem;
  const std::string descriptors = "/proc/" + std::to_string(::getpid()) + "/fd";
  constexpr int kMostLinks = 40;  // as Linux
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const fs::path link = fs::absolute(path, error), directory = fs::canonical(link.parent_path(), error);
    const std::string name = link.filename().string();
    int fd = -1;
    if (!error && directory == descriptors && std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc())
      return fd;
    const fs::path target = fs::read_symlink(link, error);
    if (error) return -1;  // no link
    path = (link.parent_path() / target).string();
  }
  return -1;
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File File::open(const std::string& path, int flags, const char* action) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(path, action, errno);
  return File(fd, path);
}

File File::open_read(const std::string& path) {
  File file = open(path, O_RDONLY, "open for reading");
  if (S_ISDIR(stat_of(file.fd_, path).st_mode)) fail(path, "open for reading", EISDIR);
  return file;
}

File File::create(const std::string& path) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, "create"); }
File File::create_new(const std::string& path) { return open(path, O_WRONLY | O_CREAT | O_EXCL, "create"); }
File File::open_write(const std::string& path) { return open(path, O_WRONLY, "open for writing"); }

File File::open_pipe(const std::string& path) {
  constexpr std::chrono::milliseconds kWait(5000), kPause(20);
  int fd = -1;
  for (std::chrono::milliseconds waited{}; waited <= kWait; waited += kPause) {
    fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 || errno != ENXIO) break;
    std::this_thread::sleep_for(kPause);
    errno = ENXIO;
  }
  if (fd < 0 && errno == ENXIO)
    throw Error(ErrorKind::kIo, "{}: is a pipe that nobody reads; start its reader first", path);
  if (fd < 0) fail(path, "open for writing", errno);
  File file(fd, path);
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0) fail(path, "open for writing", errno);
  return file;
}

File File::open_append(const std::string& path) {
  File file = open(path, O_WRONLY | O_CREAT, "open for appending");
  if (::lseek(file.fd_, 0, SEEK_END) < 0) fail(path, "seek to the end", errno);
  return file;
}

File File::create_in_place(const std::string& path) {
  const int own = own_descriptor(path);
  std::error_code ignored;
  if (own < 0 && std::filesystem::is_fifo(path, ignored)) return open_pipe(path);
  if (own < 0) return create(path);
  const int fd = ::fcntl(own, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail(path, "open for writing", errno);
  return File(fd, path);
}

int64_t File::size() const { return stat_of(fd_, path_).st_size; }
bool File::is_regular() const { return S_ISREG(stat_of(fd_, path_).st_mode); }

int64_t File::read_at(int64_t offset, std::span<std::byte> buffer) const {
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t n = ::pread(fd_, buffer.data() + done, buffer.size() - done, offset + static_cast<int64_t>(done));
    if (n == 0) break;
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      fail(path_, "read", errno);
    }
  }
  return static_cast<int64_t>(done);
}

void File::read_exactly_at(int64_t offset, std::span<std::byte> buffer) const {
  const int64_t got = read_at(offset, buffer);
  if (got != static_cast<int64_t>(buffer.size()))
    throw Error(ErrorKind::kIo, "{}: is cut off: {} bytes wanted at offset {}, the file holds {} there", path_,
                buffer.size(), offset, got);
}

int64_t File::read_some(std::span<std::byte> buffer) {
  for (;;) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n >= 0) return n;
    if (errno != EINTR) fail(path_, "read", errno);
  }
}

void File::will_need(int64_t offset, int64_t length) const {
  ::posix_fadvise(fd_, offset, length, POSIX_FADV_WILLNEED);
}
void File::will_read_sequentially() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL); }

namespace {

/// write_some(from): of what is behind so many bytes, as write() does it.
template <typename WriteSome>
void write_fully(const std::string& path, size_t size, WriteSome write_some) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = write_some(done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n == 0) {
      fail(path, "write", ENOSPC);  // POSIX leaves 0 for a regular file unspecified; never loop on it
    } else if (errno != EINTR) {
      fail(path, "write", errno);
    }
  }
}

}  // namespace

void File::write_all(std::string_view bytes) {
  write_fully(path_, bytes.size(), [&](size_t done) { return ::write(fd_, bytes.data() + done, bytes.size() - done); });
}

void File::write_all_at(int64_t offset, std::span<const std::byte> bytes) {
  write_fully(path_, bytes.size(), [&](size_t done) {
    return ::pwrite(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
  });
}

void File::truncate(int64_t bytes) {
  int result = 0;
  do {
    result = ::ftruncate(fd_, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail(path_, "truncate", errno);
  if (::lseek(fd_, bytes, SEEK_SET) < 0) fail(path_, "seek", errno);
}

void File::sync() {
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail(path_, "fsync", errno);  // EINVAL: pipes, /dev/null
}

void File::sync_data() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail(path_, "fdatasync", errno);
}

void File::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail(path_, "close", errno);
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  File file = File::open_read(path);
  const bool has_size = file.is_regular();
  const int64_t size = has_size ? file.size() : 0;
  if (size > max_bytes)
    throw Error(ErrorKind::kIo, "{}: holds {} bytes; at most {} are allowed here", path, size, max_bytes);
  std::string text(static_cast<size_t>(size), '\0');
  if (has_size) {
    file.read_exactly_at(0, std::as_writable_bytes(std::span(text)));
    return text;
  }
  std::string piece(size_t{1} << 16, '\0');
  while (const int64_t bytes = file.read_some(std::as_writable_bytes(std::span(piece)))) {
    text.append(piece, 0, static_cast<size_t>(bytes));
    if (static_cast<int64_t>(text.size()) > max_bytes)
      throw Error(ErrorKind::kIo, "{}: gives more than {} bytes; no more are allowed here", path, max_bytes);
  }
  return text;
}

int64_t time_of_change_ns(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail(path, "stat", errno);
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void sync_directory(const std::string& directory) {
  const std::string path = directory.empty() ? "." : directory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(path, "open directory", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL) fail(path, "fsync directory", error);  // EINVAL: file systems without it
}

void rename_into_place(const std::string& temporary_path, const std::string& path) {
  if (::rename(temporary_path.c_str(), path.c_str()) != 0) fail(path, "rename the finished file to this name", errno);
  sync_directory(std::filesystem::path(path).parent_path().string());
}

FileWriter::FileWriter(File file, int64_t offset, int64_t buffer_bytes)
    : file_(std::move(file)), offset_(offset), buffer_bytes_(buffer_bytes) {
  buffer_.reserve(static_cast<size_t>(buffer_bytes));
}

void FileWriter::check_usable() const {
  if (failed_)
    throw Error(ErrorKind::kIo, "{}: an earlier write failed; nothing more is written to this file", file_.path());
}

void FileWriter::write(std::string_view bytes) {
  check_usable();
  offset_ += static_cast<int64_t>(bytes.size());
  if (static_cast<int64_t>(buffer_.size() + bytes.size()) > buffer_bytes_) flush();
  if (static_cast<int64_t>(bytes.size()) < buffer_bytes_) {
    buffer_.append(bytes);
    return;
  }
  failed_ = true;
  file_.write_all(bytes);
  failed_ = false;
}

void FileWriter::flush() {
  check_usable();
  failed_ = true;  // until the write has gone through
  file_.write_all(buffer_);
  failed_ = false;
  buffer_.clear();
}

void FileWriter::sync() {
  flush();
  failed_ = true;  // after a failed fsync the kernel may have dropped the pages: a second fsync would lie
  file_.sync();
  failed_ = false;
}

void FileWriter::sync_data() {
  flush();
  failed_ = true;  // as in sync()
  file_.sync_data();
  failed_ = false;
}

void FileWriter::close() {
  flush();
  failed_ = true;
  file_.close();
}

const char* kind_of_file(const std::string& path) {
  std::error_code error;
  switch (std::filesystem::status(path, error).type()) {
    case std::filesystem::file_type::regular:
      return "a file";
    case std::filesystem::file_type::directory:
      return "a directory";
    case std::filesystem::file_type::fifo:
      return "a pipe";
    case std::filesystem::file_type::character:
      return "a terminal or another device";
    case std::filesystem::file_type::block:
      return "a device";
    case std::filesystem::file_type::socket:
      return "a socket";
    case std::filesystem::file_type::not_found:
      return "not there";
    default:
      return "something that cannot be looked at";
  }
}

void check_replaceable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  if (!fs::is_symlink(status))
    throw Error(ErrorKind::kIo, "{}: is {} and would be replaced by a file; remove it or name another file", path,
                kind_of_file(path));
  throw Error(ErrorKind::kIo,
              "{}: is a symbolic link (to {}) and would be replaced by a file; remove the link or name another file", path,
              fs::read_symlink(path, error).string());
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      temporary_path_(path + ".tmp." + std::to_string(::getpid())),
      writer_((check_replaceable(path), File::create(temporary_path_))) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_path_.c_str());
}

void AtomicFile::commit() {
  writer_.sync();
  writer_.close();
  rename_into_place(temporary_path_, path_);
  committed_ = true;
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace tokenmill::io
