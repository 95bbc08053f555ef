#include "io/hdf5.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/record_reader.h"
#include "io/utf8.h"
#include "kernels/core/source_place.h"

namespace tokenmill::io {
namespace {

constexpr size_t kMostListed = 8;  // names in a message

/// "file write failed: time = ..., errno = 28, error message = 'No space left on device', buf = 0x..., ..." without what
/// nobody can use, where the system gave the reason: "file write failed: No space left on device".
std::string plain_reason(std::string_view description) {
  constexpr std::string_view kBegin = "error message = '";
  const size_t begin = description.find(kBegin);
  if (begin == description.npos) return std::string(description);
  const std::string_view reason = description.substr(begin + kBegin.size());
  return fmt::format("{}: {}", description.substr(0, description.find_first_of(":,")), reason.substr(0, reason.find('\'')));
}

herr_t keep_first(unsigned number, const H5E_error2_t* error, void* reason) {
  if (number == 0 && error->desc != nullptr)
    *static_cast<std::string*>(reason) = excerpt(plain_reason(error->desc), 200);
  return 0;
}

/// The library closes what is open when the program ends, and crashes on a file whose last write had failed. All that we
/// open has an owner. Before main: it must be the first call.
[[maybe_unused]] const herr_t kNoExitHandler = H5dont_atexit();

herr_t add_name(hid_t group, const char* name, const H5L_info_t*, void* data) {
  auto& names = *static_cast<std::vector<std::string>*>(data);
  std::string text = excerpt(name);
  silence_hdf5();
  const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object >= 0) {
    if (H5Iget_type(object) == H5I_GROUP) text += " (group)";
    H5Oclose(object);
  }
  names.push_back(std::move(text));
  return names.size() > kMostListed ? 1 : 0;  // 1 ends the walk
}

bool is_lock_failure(const std::string& reason) { return reason.find("lock file") != std::string::npos; }

}  // namespace

void silence_hdf5() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  return reason;
}

void throw_hdf5(const char* call, const char* file, int line) {
  const std::string reason = hdf5_reason();
  const std::string_view name = std::string_view(call).substr(0, std::string_view(call).find('('));
  throw Error(ErrorKind::kIo, "{} {}:{}: {}", name, source_path(file), line, reason);
}

Hdf5Id open_hdf5(const std::string& path) {
  File::open_read(path);  // what cannot be read at all has a plain reason
  silence_hdf5();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file >= 0) return {file, H5Fclose};
  const std::string reason = hdf5_reason();
  if (is_lock_failure(reason))
    throw Error(ErrorKind::kIo,
                "{}: another process holds this HDF5 file locked, or its file system has no locks ({}); wait for "
                "that process, or set HDF5_USE_FILE_LOCKING=FALSE in every rank's environment",
                path, reason);
  if (!is_hdf5_file(path)) throw Error(ErrorKind::kInput, "{}: is not an HDF5 file ({})", path, reason);
  throw Error(ErrorKind::kIo, "{}: this HDF5 file is damaged or cut off: {}", path, reason);
}

std::string list_hdf5(hid_t file, const std::string& group) {
  std::vector<std::string> names;
  silence_hdf5();
  const Hdf5Id opened(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose);
  hsize_t index = 0;
  if (opened.is_open()) H5Literate(opened, H5_INDEX_NAME, H5_ITER_INC, &index, add_name, &names);
  if (names.empty()) return "nothing";
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostListed; ++i)
    text += (i == 0 ? "" : ", ") + group + (group == "/" ? "" : "/") + names[i];
  return names.size() > kMostListed ? text + ", ..." : text;
}

}  // namespace tokenmill::io
