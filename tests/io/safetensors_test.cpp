#include "io/safetensors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

namespace {

/// A file with this header, padded as writers do, and data.
std::string file_bytes(std::string header, size_t data_bytes) {
  while (header.size() % 8 != 0) header += ' ';
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'd');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, int64_t begin,
                   int64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string error_of(const std::string& path) {
  try {
    io::read_safetensors(path);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kIo);
    return error.what();
  }
  return "no error";
}

std::string case_file(const test::TempDir& dir, const std::string& name) {
  const std::string from = std::string(TM_TEST_DATA "/cases/") + name + ".bin";
  return dir.write(name + ".safetensors", io::read_file(from, 1000));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers reserve terabytes of address space
#else
constexpr bool kSanitized = false;
#endif

/// At most 1 GiB of address space while this lives.
class AddressSpaceLimit {
 public:
  AddressSpaceLimit() {
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{rlim_t{1} << 30, before_.rlim_max};
    if (!kSanitized) ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("whole files load") {
  const test::TempDir dir;
  const io::TensorIndex index = io::read_safetensors(case_file(dir, "st_ok"));
  REQUIRE(index.tensors().size() == 1);
  const io::TensorInfo& w = index.at("w");
  CHECK(w.shape == std::vector<int64_t>{2, 2});
  CHECK(w.type_name == "F32");
  CHECK(index.format_of(w) == WeightFormat::kF32);
  CHECK(w.bytes == 16);
  float values[4];
  io::File::open_read(index.file_of(w)).read_exactly_at(w.offset, std::as_writable_bytes(std::span(values)));
  CHECK(std::vector<float>(values, values + 4) == std::vector<float>{1, 2, 3, 4});

  const io::TensorIndex empty = io::read_safetensors(case_file(dir, "st_ok_empty"));
  CHECK(empty.at("w").shape == std::vector<int64_t>{0, 4});
  CHECK(empty.at("w").bytes == 0);
}

TEST_CASE("every damaged file is refused with the file's name and the tensor's, in 1 GiB of address space") {
  const test::TempDir dir;
  const AddressSpaceLimit limit;
  const std::vector<std::pair<std::string, std::string>> damaged = {
      {"st_short", "it has 5 bytes"},
      {"st_len_huge", "given as 9223372036854775808 bytes"},
      {"st_len_wrap", "given as 18446744073709551613 bytes"},
      {"st_len_past_end", "given as 4096 bytes, the file has 80"},
      {"st_data_cut", "tensor w: data_offsets [0, 16] reach past the 9 bytes of data"},
      {"st_shape_larger", "tensor w: shape [1000, 1000] of F32 takes 4000000 bytes, data_offsets [0, 16] hold 16"},
      {"st_shape_smaller", "tensor w: shape [1] of F32 takes 4 bytes, data_offsets [0, 16] hold 16"},
      {"st_shape_wrap", "tensor w: shape [4294967296, 4294967296] of F32 has no valid size"},
      {"st_reversed", "tensor w: data_offsets [16, 0] end before they start"},
      {"st_one_offset", "tensor w: data_offsets has 1 numbers, must have 2"},
      {"st_top_array", "the header is not a JSON object"},
      {"st_bad_utf8", "ill-formed UTF-8"},
      {"st_unknown_dtype", "tensor w: dtype Q9 is unknown"},
  };
  for (const auto& [name, reason] : damaged) {
    CAPTURE(name);
    const std::string path = case_file(dir, name);
    const std::string text = error_of(path);
    CAPTURE(text);
    CHECK(text.starts_with(path + ": "));
    CHECK(text.find(reason) != std::string::npos);
  }
}

TEST_CASE("overlaps, holes and uncovered bytes are refused") {
  const test::TempDir dir;
  const auto error_with = [&](const std::string& tensors, size_t data_bytes) {
    return error_of(dir.write("t.safetensors", file_bytes("{" + tensors + "}", data_bytes)));
  };
  const std::string a = tensor("a", "F32", "[4]", 0, 16);
  CHECK(error_with(a + "," + tensor("b", "F32", "[2]", 16, 24), 24) == "no error");
  CHECK(error_with(a + "," + tensor("b", "F32", "[2]", 12, 20), 20)
            .find("tensor b: starts at byte 12 of the data; it overlaps") != std::string::npos);
  CHECK(error_with(a + "," + tensor("b", "F32", "[4]", 0, 16), 16).find("it overlaps the tensor before it") !=
        std::string::npos);
  CHECK(error_with(a + "," + tensor("b", "F32", "[2]", 20, 28), 28)
            .find("tensor b: starts at byte 20 of the data; no tensor covers the bytes from 16") != std::string::npos);
  CHECK(error_with(tensor("b", "F32", "[2]", 4, 12), 12).find("no tensor covers the bytes from 0") !=
        std::string::npos);
  CHECK(error_with(a, 20).find("has 20 bytes of data, its tensors cover 16") != std::string::npos);
  CHECK(error_with("", 0) == "no error");
  CHECK(error_with("", 1).find("its tensors cover 0") != std::string::npos);
  CHECK(error_with(a + "," + tensor("z", "F32", "[0,7]", 16, 16), 16) == "no error");
}

TEST_CASE("wrong fields are named") {
  const test::TempDir dir;
  const auto error_with = [&](const std::string& header) {
    return error_of(dir.write("t.safetensors", file_bytes(header, 0)));
  };
  CHECK(error_with(R"({"w":3})").find("tensor w: is number, must be an object") != std::string::npos);
  CHECK(error_with(R"({"w":{"shape":[0],"data_offsets":[0,0]}})").find("tensor w: dtype is missing") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F32","shape":"x","data_offsets":[0,0]}})").find("tensor w: shape is string") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})").find("tensor w: shape holds -1") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F32","shape":[0.0],"data_offsets":[0,0]}})").find("shape holds 0.0") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,"0"]}})").find("data_offsets holds string") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F32","shape":[0,1,1,1,1,1,1,1,1],"data_offsets":[0,0]}})").find("9 dimensions") !=
        std::string::npos);
  CHECK(error_with(R"({"w":{"dtype":"F4","shape":[0,9223372036854775808],"data_offsets":[0,0]}})")
            .find("shape holds 9223372036854775808") != std::string::npos);
  CHECK(error_with(R"({"__metadata__":{"a":1}})").find("__metadata__: a is number") != std::string::npos);
  CHECK(error_with(R"({"__metadata__":[]})").find("__metadata__ is array") != std::string::npos);
  CHECK(error_with(R"({} {})").find("invalid JSON") != std::string::npos);
  CHECK(error_with("").find("the header is not a JSON object") != std::string::npos);
}

TEST_CASE("types that are no weights are listed, and loading them names the tensor") {
  const test::TempDir dir;
  const std::string path = dir.write("t.safetensors", file_bytes("{" + tensor("ids", "I64", "[2]", 0, 16) + "," +
                                                                     tensor("fp8", "F8_E4M3", "[3]", 16, 19) + "," +
                                                                     tensor("fp4", "F4", "[2,3]", 19, 22) + "}",
                                                                 22));
  const io::TensorIndex index = io::read_safetensors(path);
  CHECK(index.at("fp4").bytes == 3);
  CHECK(index.total_bytes() == 22);
  CHECK_FALSE(index.at("ids").format.has_value());
  CHECK_THROWS_WITH_AS(index.format_of(index.at("fp8")),
                       doctest::Contains((path + ": tensor fp8 has type F8_E4M3; weights can be F32").c_str()), Error);
  CHECK(error_of(dir.write("odd.safetensors", file_bytes("{" + tensor("fp4", "F4", "[3]", 0, 2) + "}", 2)))
            .find("no valid size") != std::string::npos);
}

TEST_CASE("a directory is read through its index, and what the index says is checked") {
  const test::TempDir dir;
  const std::string one =
      file_bytes("{" + tensor("a", "BF16", "[2]", 0, 4) + "," + tensor("b", "F16", "[1]", 4, 6) + "}", 6);
  const std::string two = file_bytes("{" + tensor("c", "F32", "[]", 0, 4) + "}", 4);
  dir.write("m/one.safetensors", one);
  dir.write("m/two.safetensors", two);
  const auto with_map = [&](const std::string& map) {
    return dir.write("m/model.safetensors.index.json", "{\"metadata\":{\"total_size\":10},\"weight_map\":" + map + "}");
  };
  const std::string directory = dir / "m";

  CHECK(
      error_of(directory).find(
          "holds 2 *.safetensors files (one.safetensors, two.safetensors, ...) but no model.safetensors.index.json") !=
      std::string::npos);
  const std::string index_path = with_map(R"({"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"})");
  const io::TensorIndex index = io::read_safetensors(directory);
  CHECK(index.files() == std::vector<std::string>{dir / "m/one.safetensors", dir / "m/two.safetensors"});
  std::string order;
  for (const io::TensorInfo& t : index.tensors()) order += t.name + std::to_string(t.file_index);
  CHECK(order == "a0b0c1");
  CHECK(index.at("c").shape.empty());
  CHECK_THROWS_WITH_AS(index.at("d"), doctest::Contains("one.safetensors and 1 more files: tensor d is missing"),
                       Error);

  for (const char* shard :
       {"../m/one.safetensors", "/etc/passwd", "", "..", ".", "sub/one.safetensors", "one.safetensors\\u0000"}) {
    CAPTURE(shard);
    with_map("{\"a\":\"" + std::string(shard) + "\"}");
    CHECK(error_of(directory).find("index.json: tensor a: file \"") != std::string::npos);
  }
  with_map(R"({"a":"three.safetensors"})");
  CHECK(error_of(directory) == index_path + ": names " + dir.path() + "/m/three.safetensors, which is missing");
  with_map(R"({"a":"one.safetensors","x":"two.safetensors"})");
  CHECK(error_of(directory) == index_path + ": tensor x should be in two.safetensors, which does not hold it");
  with_map(R"({"a":"one.safetensors","c":"one.safetensors","b":"two.safetensors"})");
  CHECK(error_of(directory).find("tensor c should be in one.safetensors") != std::string::npos);
  dir.write("m/two.safetensors", file_bytes("{" + tensor("a", "F32", "[]", 0, 4) + "}", 4));
  with_map(R"({"a":"one.safetensors","b":"two.safetensors"})");
  CHECK(error_of(directory).find("tensor a occurs twice, it is in " + dir.path() + "/m/one.safetensors too") !=
        std::string::npos);
  for (const char* map : {"[]", "{}", "{\"a\":1}", "null", "{"}) {
    CAPTURE(map);
    with_map(map);
    CHECK(error_of(directory).starts_with(index_path));
  }
}

TEST_CASE("a directory with one file needs no index") {
  const test::TempDir dir;
  CHECK(error_of(dir.path()) == dir.path() + ": holds no *.safetensors file");
  CHECK_FALSE(io::has_safetensors(dir.path()));
  const std::string bytes = file_bytes("{" + tensor("c", "F32", "[]", 0, 4) + "}", 4);
  dir.write("consolidated.safetensors", bytes);
  CHECK(io::has_safetensors(dir.path()));
  CHECK(io::read_safetensors(dir.path()).files().front() == dir / "consolidated.safetensors");
  dir.write("model.safetensors", bytes);
  CHECK(io::read_safetensors(dir.path()).files().front() == dir / "model.safetensors");
  CHECK(error_of(dir / "absent.safetensors").find("cannot open for reading") != std::string::npos);
}

TEST_CASE("the tiny models of the test data load") {
  for (const char* name : {"tiny-llama", "tiny-llama3", "tiny-qwen2", "tiny-mistral"}) {
    CAPTURE(name);
    const std::string directory = std::string(TM_TEST_DATA "/models/") + name;
    const io::TensorIndex index = io::read_safetensors(directory);
    CHECK(index.files().size() == (std::string(name) == "tiny-llama3" ? 3 : std::string(name) == "tiny-qwen2" ? 2 : 1));
    const io::TensorInfo& embedding = index.at("model.embed_tokens.weight");
    CHECK(embedding.shape.size() == 2);
    CHECK(embedding.bytes == embedding.num_elements() * weight_row_bytes(index.format_of(embedding), 1));
  }
}
