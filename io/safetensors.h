#pragma once
#include <string>

#include "io/tensor_index.h"

/// Checkpoints in safetensors format. Nothing a file says is believed before it is checked: lengths against the file's
/// size, shapes against byte ranges, ranges against each other; the tensors must cover the data exactly. All errors are
/// Error(kIo) and name the file and, where one is at fault, the tensor. Only headers are read here.
namespace tokenmill::io {

/// The format's own limit on the header's length.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// The tensors of one file.
TensorIndex read_safetensors_file(const std::string& path);

/// The tensors of a model directory: model.safetensors; else the shards that model.safetensors.index.json names (all
/// must exist and hold what the index says); else the one *.safetensors file there is. Given a file,
/// read_safetensors_file.
TensorIndex read_safetensors(const std::string& path);

/// True when read_safetensors would find something to read in the directory.
bool has_safetensors(const std::string& directory);

}  // namespace tokenmill::io
