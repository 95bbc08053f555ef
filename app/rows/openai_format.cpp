#include <fmt/format.h>

#include <iterator>

#include "app/rows/format.h"
#include "app/rows/logprobs.h"
#include "app/rows/openai.h"

namespace tokenmill::rows {
namespace {

bool is_chat(const RowItem& item) { return item.shape == RowShape::kChatCompletion; }

std::string beginning(const RowItem& item, int status) {
  return fmt::format(
      "{{\"id\":\"batch_req_{}\",\"custom_id\":{},\"response\":{{\"status_code\":{},\"request_id\":\"req_{}\","
      "\"body\":",
      item.digest, item.id_json, status, item.digest);
}

/// Up to the first choice.
std::string answer_beginning(const RowItem& item, const OpenAiContext& context) {
  std::string out = beginning(item, 200);
  fmt::format_to(std::back_inserter(out),
                 "{{\"id\":\"{}-{}\",\"object\":\"{}\",\"created\":{},\"model\":", is_chat(item) ? "chatcmpl" : "cmpl",
                 item.digest, is_chat(item) ? "chat.completion" : "text_completion", context.created);
  io::append_json_string(out, context.model);
  return out + ",\"choices\":[";
}

void append_usage(std::string& out, int64_t num_prompt_tokens, int64_t num_completion_tokens) {
  fmt::format_to(std::back_inserter(out),
                 ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}", num_prompt_tokens,
                 num_completion_tokens, num_prompt_tokens + num_completion_tokens);
}

void append_logprobs(std::string& out, const RowItem& item, const RequestOutput& output, const SequenceOutput& sequence,
                     const LogprobWriter& writer) {
  if (!item.logprobs) {
    out += "null";
  } else if (is_chat(item)) {
    writer.append_chat(out, sequence.logprobs);
  } else {
    LogprobWriter::Completion completion;
    if (item.echo_logprobs) completion = {item.prompt_token_ids, output.prompt_logprobs, {}, true};
    completion.generated = sequence.logprobs;
    completion.decode = item.decode;
    writer.append_completion(out, completion);
  }
}

void append_choice(std::string& out, const RowItem& item, const RequestOutput& output, const SequenceOutput& sequence,
                   const LogprobWriter& writer) {
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},{}", sequence.index,
                 is_chat(item) ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
  io::append_json_string(out, item.echo_text + sequence.text);
  if (is_chat(item)) out += ",\"refusal\":null}";
  if (item.answer.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, sequence.token_ids);
  }
  out += ",\"logprobs\":";
  append_logprobs(out, item, output, sequence, writer);
  fmt::format_to(std::back_inserter(out),
                 ",\"finish_reason\":\"{}\",\"stop_reason\":", to_string(sequence.finish_reason));
  append_stop_reason(out, sequence.stop_reason);
  if (item.prompt_logprobs && !is_chat(item)) {
    out += ",\"prompt_logprobs\":";
    writer.append_prompt(out, output.prompt_logprobs);
  }
  out += '}';
}

void append_string_or_null(std::string& out, const std::string& text) {
  if (text.empty())
    out += "null";
  else
    io::append_json_string(out, text);
}

}  // namespace

std::string format_openai(const RowItem& item, const RequestOutput& output, const OpenAiContext& context,
                          const text::Tokenizer& tokenizer) {
  const LogprobWriter writer(tokenizer, item.answer.return_tokens_as_token_ids);
  std::string out = answer_beginning(item, context);
  for (const SequenceOutput& sequence : output.outputs) {
    if (&sequence != &output.outputs[0]) out += ',';
    append_choice(out, item, output, sequence, writer);
  }
  out += ']';
  append_usage(out, output.num_prompt_tokens, output.num_completion_tokens);
  if (item.prompt_logprobs && is_chat(item)) {
    out += ",\"prompt_logprobs\":";
    writer.append_prompt(out, output.prompt_logprobs);
  }
  if (item.answer.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, item.prompt_token_ids);
  }
  if (item.answer.return_prompt_text) {
    out += ",\"prompt_text\":";
    io::append_json_string(out, item.prompt_text);
  }
  return out + "}},\"error\":null}";
}

std::string format_openai_error(const RowItem& item, const RowError& error) {
  std::string out = beginning(item, error.ours ? 500 : 400) + "{\"error\":{\"message\":";
  io::append_json_string(out, error.message);
  fmt::format_to(std::back_inserter(out),
                 ",\"type\":\"{}\",\"param\":", error.ours ? "server_error" : "invalid_request_error");
  append_string_or_null(out, error.field);
  out += ",\"code\":";
  io::append_json_string(out, error.code);
  return out + "}}},\"error\":null}";
}

std::string format_openai_skipped(const RowItem& item, const OpenAiContext& context) {
  std::string out = answer_beginning(item, context);
  out += is_chat(item) ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}"
                       : "{\"index\":0,\"text\":\"\"";
  out += ",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}]";
  append_usage(out, 0, 0);
  out += ",\"skipped\":{\"param\":";
  io::append_json_string(out, item.prompt_field);
  out += ",\"message\":";
  io::append_json_string(out, item.skipped);
  return out + "}}},\"error\":null}";
}

}  // namespace tokenmill::rows
