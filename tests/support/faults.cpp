// A library to preload into the program: makes calls on files of one directory fail, or the machine go down at them.
//   TOKENMILL_FAULT_PATH    part of the paths that count
//   TOKENMILL_FAULT_LOG     a file that gets a line "rank operation path seconds" for each call that counts, seconds of
//                           CLOCK_MONOTONIC; behind it "offset value" of a pwrite() of eight bytes
//   TOKENMILL_FAULT         ACTION:N[:RANK], at the N-th call (from 1) that counts and that the action applies to, in
//   every
//                           process or in the one with that OMPI_COMM_WORLD_RANK:
//     short   write() or pwrite() takes half of the bytes, and so does every later one
//     enospc  the same, then ENOSPC for all later ones
//     sync    fsync()/fdatasync() fails with EIO                                 rename  rename() fails with EIO
//     kill    SIGKILL before the call                                            lost    SIGKILL, and what was not
//     synced is cut off holes   as lost, but unsynced bytes turn to zeros instead segv    SIGSEGV, for N a row, when
//     the journal has been told that it is being computed
//     hang    the N-th pread() of 16 KiB or more does not return, and none later
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

namespace {

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

enum class Op { kWrite, kSync, kRename, kOther };

class Faults {
 public:
  static Faults& instance() {
    static auto* faults = new Faults;  // calls come until the process is gone
    return *faults;
  }

  bool counts(const std::string& path) const { return !part_.empty() && path.find(part_) != path.npos; }

  /// True when this call is to fail as the action says.
  bool hit(Op op, const char* name, const std::string& path, const std::string& details = "") {
    std::lock_guard lock(mutex_);
    log(name, path, details);
    if (!mine_ || !applies(op)) return false;
    ++calls_;
    if (calls_ < at_) return false;
    if (calls_ > at_) return action_ == "short" || action_ == "enospc";
    if (action_ == "lost" || action_ == "holes") lose();
    if (action_ == "kill" || action_ == "lost" || action_ == "holes") raise(SIGKILL);
    return true;
  }
  /// These bytes are the entry of the row that is to end the process (jobs/journal/running_rows.h).
  bool is_poison(const void* bytes, size_t size) const {
    int64_t value = 0;
    if (!mine_ || action_ != "segv" || size != sizeof value) return false;
    std::memcpy(&value, bytes, size);
    return value == at_ + 1;
  }
  /// Reading that file is to last for ever.
  bool hangs(const std::string& path) {
    if (!mine_ || action_ != "hang" || !counts(path)) return false;
    std::lock_guard lock(mutex_);
    return ++calls_ >= at_;
  }
  bool full() {
    std::lock_guard lock(mutex_);
    return action_ == "enospc" && calls_ > at_;
  }
  void created(const std::string& path) {
    std::lock_guard lock(mutex_);
    synced_.emplace(path, -1);
  }
  void synced(const std::string& path, int64_t bytes) {
    std::lock_guard lock(mutex_);
    struct stat status {};
    if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      for (auto& [file, size] : synced_)  // names are safe now
        if (size == -1 && file.substr(0, file.rfind('/')) == path) size = 0;
      return;
    }
    synced_[path] = bytes;
  }
  void renamed(const std::string& from, const std::string& to) {
    std::lock_guard lock(mutex_);
    std::map<std::string, int64_t> moved;
    for (const auto& [path, size] : synced_)
      moved[path == from || path.rfind(from + "/", 0) == 0 ? to + path.substr(from.size()) : path] = size;
    synced_ = std::move(moved);
  }

 private:
  Faults() : part_(variable("TOKENMILL_FAULT_PATH")), log_(variable("TOKENMILL_FAULT_LOG")) {
    rank_ = variable("OMPI_COMM_WORLD_RANK");
    if (rank_.empty()) rank_ = "0";
    const std::string fault = variable("TOKENMILL_FAULT");
    const size_t first = fault.find(':'), second = fault.find(':', first + 1);
    if (first == fault.npos) return;
    action_ = fault.substr(0, first);
    at_ = std::atoll(fault.c_str() + first + 1);
    mine_ = second == fault.npos || fault.substr(second + 1) == rank_;
  }

  bool applies(Op op) const {
    if (action_ == "short" || action_ == "enospc") return op == Op::kWrite;
    if (action_ == "sync") return op == Op::kSync;
    if (action_ == "rename") return op == Op::kRename;
    if (action_ == "segv" || action_ == "hang") return false;
    return true;
  }

  void log(const char* name, const std::string& path, const std::string& details) const {
    if (log_.empty()) return;
    const int fd = next<int (*)(const char*, int, ...)>("open")(log_.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0666);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double now_s = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    const std::string line = rank_ + " " + name + " " + path + " " + std::to_string(now_s) + details + "\n";
    [[maybe_unused]] const auto written =
        next<ssize_t (*)(int, const void*, size_t)>("write")(fd, line.data(), line.size());
    close(fd);
  }

  /// What a machine that goes down may take with it.
  void lose() const {
    for (const auto& [path, bytes] : synced_) {
      struct stat status {};
      if (stat(path.c_str(), &status) != 0) continue;
      if (bytes < 0) {
        unlink(path.c_str());
        continue;
      }
      if (status.st_size <= bytes) continue;
      [[maybe_unused]] int result = truncate(path.c_str(), bytes);
      if (action_ == "holes") result = truncate(path.c_str(), status.st_size);
    }
  }

  std::string part_, log_, rank_, action_;
  int64_t at_ = 0, calls_ = 0;
  bool mine_ = false;
  std::mutex mutex_;
  std::map<std::string, int64_t> synced_;  // path -> bytes on the disk; -1: not even the name
};

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

int fail(int error) {
  errno = error;
  return -1;
}

int opened(const char* name, const char* path, int flags, unsigned mode) {
  Faults& faults = Faults::instance();
  const bool creates = (flags & O_CREAT) != 0 && faults.counts(path);
  const bool is_new = creates && access(path, F_OK) != 0;
  if (creates) faults.hit(Op::kOther, "create", path);
  const int fd = next<int (*)(const char*, int, ...)>(name)(path, flags, mode);
  if (is_new && fd >= 0) faults.created(path_of(fd));
  return fd;
}

/// real(taken): the call itself with that many bytes.
template <typename Real>
ssize_t written(int fd, const char* name, size_t size, Real real, const std::string& details = "") {
  Faults& faults = Faults::instance();
  const std::string path = fd > 2 ? path_of(fd) : "";
  if (!faults.counts(path) || !faults.hit(Op::kWrite, name, path, details)) return real(size);
  if (faults.full()) return fail(ENOSPC);
  return real(size > 1 ? size / 2 : size);
}

int synced(const char* name, int fd) {
  Faults& faults = Faults::instance();
  const std::string path = path_of(fd);
  if (!faults.counts(path)) return next<int (*)(int)>(name)(fd);
  if (faults.hit(Op::kSync, name, path)) return fail(EIO);
  struct stat status {};
  fstat(fd, &status);
  const int result = next<int (*)(int)>(name)(fd);
  if (result == 0) faults.synced(path, status.st_size);
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  return opened("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  return opened("open64", path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  return written(fd, "write", size, [&](size_t taken) {
    return next<ssize_t (*)(int, const void*, size_t)>("write")(fd, bytes, taken);
  });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  int64_t value = 0;
  std::string details;
  if (size == sizeof value) {
    std::memcpy(&value, bytes, size);
    details = " " + std::to_string(offset) + " " + std::to_string(value);
  }
  const ssize_t result = written(
      fd, "pwrite", size,
      [&](size_t taken) {
        return next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, taken, offset);
      },
      details);
  if (Faults::instance().is_poison(bytes, size)) raise(SIGSEGV);
  return result;
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  constexpr size_t kLarge = 16 << 10;
  if (size >= kLarge && Faults::instance().hangs(path_of(fd))) pause();
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, bytes, size, offset);
}

ssize_t pread64(int fd, void* bytes, size_t size, off_t offset) { return pread(fd, bytes, size, offset); }

ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t offset) { return pwrite(fd, bytes, size, offset); }

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }

int rename(const char* from, const char* to) {
  Faults& faults = Faults::instance();
  if (!faults.counts(to)) return next<int (*)(const char*, const char*)>("rename")(from, to);
  if (faults.hit(Op::kRename, "rename", to)) return fail(EIO);
  const int result = next<int (*)(const char*, const char*)>("rename")(from, to);
  if (result == 0) faults.renamed(from, to);
  return result;
}

int ftruncate(int fd, off_t size) {
  const std::string path = path_of(fd);
  if (Faults::instance().counts(path)) Faults::instance().hit(Op::kOther, "truncate", path);
  return next<int (*)(int, off_t)>("ftruncate")(fd, size);
}

int remove(const char* path) {
  if (Faults::instance().counts(path)) Faults::instance().hit(Op::kOther, "remove", path);
  return next<int (*)(const char*)>("remove")(path);
}

}  // extern "C"
