// Any bytes as a GGUF file: metadata that can be looked at and tensors that lie inside the file side by side, or an
// Error.
#include "io/file.h"
#include "io/gguf.h"
#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

namespace {

/// Calls every accessor: each gives a value or names the key.
void touch(const io::GgufMetadata& metadata, const std::string& key) {
  const auto attempt = [&](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      test::promise(error.kind() == ErrorKind::kIo, "a wrong type is an io error");
    }
  };
  attempt([&] { metadata.unsigned_integer(key); });
  attempt([&] { metadata.integer(key); });
  attempt([&] { metadata.number(key); });
  attempt([&] { metadata.boolean(key); });
  attempt([&] { metadata.string(key); });
  attempt([&] { metadata.strings(key); });
  attempt([&] { metadata.integers(key); });
  attempt([&] { metadata.numbers(key); });
  attempt([&] { metadata.booleans(key); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const test::MemoryFile file(test::as_text(data, size));
  try {
    const io::GgufFile gguf = io::read_gguf(file.path());
    for (const auto& [key, value] : gguf.metadata.entries()) {
      test::promise(io::find_invalid_utf8(value.describe()) == std::string::npos, "descriptions are valid UTF-8");
      touch(gguf.metadata, key);
    }
    int64_t end = 0;
    for (const io::TensorInfo& tensor : gguf.tensors.tensors()) {
      test::promise(tensor.offset >= end && tensor.bytes > 0 && tensor.offset % gguf.alignment == 0,
                    "tensors do not overlap");
      end = tensor.offset + tensor.bytes;
    }
    test::promise(end <= static_cast<int64_t>(size), "tensors lie inside the file");
  } catch (const Error& error) {
    const bool split = error.kind() == ErrorKind::kConfig;
    test::promise(split || error.kind() == ErrorKind::kIo, "a damaged file is an io error");
    const std::string_view text = error.what();
    test::promise(text.starts_with(file.path()) && text.size() < 1000, "the message names the file and is short");
    test::promise(io::find_invalid_utf8(text) == text.npos, "messages are valid UTF-8");
  }
  return 0;
}
