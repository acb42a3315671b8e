// Answers calls with a SavedModel as TF Serving does: tensorflow::LoadSavedModel, the C++ loader
// that its servables use, then Session::Run. There is no Python in this process.
//
//   run_examples EXPORT CALLS ANSWERS [OP_LIBRARY...]
//
// CALLS and ANSWERS are sequences of records, 8 bytes of length (little endian) before each. A call
// is the signature's name, the number of tensors in decimal, and as many NamedTensorProto. An
// answer is "" or an error message, and then the same.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/protobuf/named_tensor.pb.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace {

// The next record; false at the end of the file.
bool Read(std::istream& in, std::string* record) {
  uint64_t length;
  if (!in.read(reinterpret_cast<char*>(&length), sizeof length)) return false;
  record->resize(length);
  if (!in.read(record->data(), length)) throw std::runtime_error("a record is cut short");
  return true;
}

void Write(std::ostream& out, const std::string& record) {
  const uint64_t length = record.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(record.data(), length);
}

void LoadOps(const char* library) {
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(library, status);
  const std::string message = TF_GetCode(status) == TF_OK ? "" : TF_Message(status);
  TF_DeleteStatus(status);
  if (!message.empty()) throw std::runtime_error(std::string(library) + ": " + message);
}

using Feeds = std::vector<std::pair<std::string, tensorflow::Tensor>>;

Feeds ReadFeeds(std::istream& in, const tensorflow::SignatureDef& signature) {
  std::string record;
  Read(in, &record);
  Feeds feeds;
  for (int left = std::stoi(record); left > 0; --left) {
    tensorflow::NamedTensorProto named;
    tensorflow::Tensor tensor;
    if (!Read(in, &record) || !named.ParseFromString(record) || !tensor.FromProto(named.tensor()))
      throw std::runtime_error("a tensor cannot be read");
    feeds.emplace_back(signature.inputs().at(named.name()).name(), std::move(tensor));
  }
  return feeds;
}

void Answer(tensorflow::Session* session, const tensorflow::SignatureDef& signature,
            const Feeds& feeds, std::ostream& out) {
  std::vector<std::string> names, fetches;
  for (const auto& [name, info] : signature.outputs()) {
    names.push_back(name);
    fetches.push_back(info.name());
  }
  std::vector<tensorflow::Tensor> outputs;
  const auto status = session->Run(feeds, fetches, {}, &outputs);
  Write(out, status.ok() ? "" : status.ToString());
  Write(out, std::to_string(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    tensorflow::NamedTensorProto named;
    named.set_name(names[i]);
    outputs[i].AsProtoField(named.mutable_tensor());
    Write(out, named.SerializeAsString());
  }
}

void Run(int argc, char** argv) {
  for (int i = 4; i < argc; ++i) LoadOps(argv[i]);
  tensorflow::SavedModelBundle bundle;
  const auto status = tensorflow::LoadSavedModel({}, {}, argv[1], {"serve"}, &bundle);
  if (!status.ok()) throw std::runtime_error(status.ToString());
  std::ifstream calls(argv[2], std::ios::binary);
  std::ofstream answers(argv[3], std::ios::binary);
  if (!calls || !answers) throw std::runtime_error("the calls or the answers cannot be opened");
  for (std::string name; Read(calls, &name);) {
    const tensorflow::SignatureDef& signature = bundle.GetSignatures().at(name);
    Answer(bundle.GetSession(), signature, ReadFeeds(calls, signature), answers);
  }
  if (!answers.flush()) throw std::runtime_error("the answers cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: run_examples EXPORT CALLS ANSWERS [OP_LIBRARY...]\n";
    return 2;
  }
  try {
    Run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "run_examples: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
