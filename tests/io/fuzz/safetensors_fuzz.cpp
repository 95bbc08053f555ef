// Any bytes as a safetensors file: tensors that lie inside the file side by side, or Error(kIo).
#include "io/file.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const test::MemoryFile file(test::as_text(data, size));
  try {
    const io::TensorIndex index = io::read_safetensors_file(file.path());
    int64_t end = 8;
    for (const io::TensorInfo& tensor : index.tensors()) {
      test::promise(tensor.offset >= end && tensor.bytes >= 0, "tensors do not overlap");
      end = tensor.offset + tensor.bytes;
    }
    test::promise(end <= static_cast<int64_t>(size), "tensors lie inside the file");
  } catch (const Error& error) {
    test::promise(error.kind() == ErrorKind::kIo, "a damaged file is an io error");
    const std::string_view text = error.what();
    test::promise(text.starts_with(file.path()) && text.size() < 1000, "the message names the file and is short");
    test::promise(io::find_invalid_utf8(text) == text.npos, "messages are valid UTF-8");
  }
  return 0;
}
