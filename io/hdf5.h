#pragma once
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/core/error.h"

/// Around every HDF5 call: its value, or Error(kIo) "H5Dread io/hdf5_reader.cpp:12: the library's own reason". HDF5
/// prints nothing: its error stack goes into the message.
#define TM_HDF5(call) \
  ::tokenmill::io::check_hdf5((::tokenmill::io::silence_hdf5(), (call)), #call, __FILE__, __LINE__)

namespace tokenmill::io {

/// HDF5 prints its error stack unless each thread says no: called before every call.
void silence_hdf5();
[[noreturn]] void throw_hdf5(const char* call, const char* file, int line);
/// Negative values are HDF5's failures; everything else is passed on.
template <typename Result>
Result check_hdf5(Result result, const char* call, const char* file, int line) {
  if (result < 0) throw_hdf5(call, file, line);
  return result;
}
/// What the library says went wrong in the last call of this thread: its innermost reason.
std::string hdf5_reason();

/// An identifier of the library's, closed by the destructor (which never throws).
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Id() {
    if (id_ < 0) return;
    silence_hdf5();
    close_(id_);
  }
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Hdf5Id(const Hdf5Id&) = delete;
  Hdf5Id& operator=(const Hdf5Id&) = delete;
  operator hid_t() const { return id_; }
  bool is_open() const { return id_ >= 0; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// Opens a file for reading. Throws Error(kInput) when it is not HDF5, Error(kIo) when it is damaged, or locked by
/// another process: the text then says what to do (HDF5_USE_FILE_LOCKING).
Hdf5Id open_hdf5(const std::string& path);

/// Names below a group, for messages: "/ids, /prompts, /tokens (group)"; at most a handful.
std::string list_hdf5(hid_t file, const std::string& group);

}  // namespace tokenmill::io
