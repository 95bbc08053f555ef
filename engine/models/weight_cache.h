#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tokenmill {

/// Packed weights kept in files on a disk of this node, so that a later job reads what a rank holds instead of the
/// checkpoint. One file per identity: a text that names all that the bytes depend on (checkpoint, slices, layout). A
/// file is believed only as far as its checksums go; nothing that is wrong with one, or with the directory, ends a job.
class WeightCache {
 public:
  /// Does not look at the directory.
  explicit WeightCache(std::string directory) : directory_(std::move(directory)) {}

  /// Fills storage with the bytes that store() was given under the same identity. False where there are none, and, with
  /// a warning that names the file, where they are damaged, cut off, of another version, identity or size, or no file;
  /// storage is then all zero.
  bool load(const std::string& identity, std::span<std::byte> storage) const;

  /// Keeps the bytes: a temporary file, synced, renamed in one step; what was there before is replaced. Makes the
  /// directory where there is none. False, with a warning that names file and reason, where that cannot be done (no
  /// room, no permission); nothing is left behind then. Temporaries of this identity whose process has ended are
  /// removed. Of several ranks with one identity, one calls it.
  bool store(const std::string& identity, std::span<const std::byte> storage) const;

  /// Where the bytes of an identity lie.
  std::string path_of(const std::string& identity) const;

 private:
  std::string directory_;
};

}  // namespace tokenmill
