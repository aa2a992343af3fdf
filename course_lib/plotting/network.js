// The arithmetic of the small models. A matrix is an array of Float32Array, one a row; weights are
// as torch has them, (outputs, inputs) in one piece.
const ZERO = 2048; // the code of a weight of 0

// The weights by name. Each array has a step, of which its numbers are multiples.
function unpacked({ names, digits }) {
  let at = 0;
  return Object.fromEntries(names.map(([name, count, step]) => [name,
    Float32Array.from({ length: count }, () => step * (fromDigits(digits, at++) - ZERO))]));
}

function linear(x, weight, bias) {
  const inputs = x[0].length;
  const outputs = weight.length / inputs;
  return x.map((row) => {
    const y = new Float32Array(outputs);
    for (let o = 0, w = 0; o < outputs; o++) {
      let sum = bias ? bias[o] : 0;
      for (let i = 0; i < inputs; i++, w++) sum += row[i] * weight[w];
      y[o] = sum;
    }
    return y;
  });
}

function layerNorm(x, weight, bias) {
  return x.map((row) => {
    const mean = total(row) / row.length;
    const variance = row.reduce((sum, each) => sum + (each - mean) ** 2, 0) / row.length;
    const size = Math.sqrt(variance + 1e-5);
    return row.map((each, i) => ((each - mean) / size) * weight[i] + bias[i]);
  });
}

function softmax(scores) {
  const top = Math.max(...scores);
  const powers = Float32Array.from(scores, (score) => Math.exp(score - top));
  const sum = total(powers);
  return powers.map((power) => power / sum);
}

// Attention in heads that are blocks of features: its outputs, and its weights by head, query and
// key. `sees(query, key)` says what may be attended; null is the weight of what may not.
function attend(queries, keys, values, heads, sees = () => true) {
  const wide = queries[0].length / heads;
  const outputs = queries.map((query) => new Float32Array(query.length));
  const weights = Array.from({ length: heads }, (_, head) => queries.map((query, i) => {
    const [from, to] = [head * wide, (head + 1) * wide];
    const scores = keys.map((key, j) => {
      if (!sees(i, j)) return -Infinity;
      let sum = 0;
      for (let f = from; f < to; f++) sum += query[f] * key[f];
      return sum / Math.sqrt(wide);
    });
    const row = softmax(scores);
    values.forEach((value, j) => {
      for (let f = from; f < to; f++) outputs[i][f] += row[j] * value[f];
    });
    return Array.from(row, (weight, j) => (sees(i, j) ? weight : null));
  }));
  return { outputs, weights };
}

function plus(x, y) {
  return x.map((row, i) => row.map((each, f) => each + y[i][f]));
}

function relu(x) {
  return x.map((row) => row.map((each) => Math.max(0, each)));
}

// A vector for each token: its own plus that of its place, counted from `first`.
function placed(tokens, vectors, positions, wide, first = 0) {
  return tokens.map((token, i) => {
    const place = positions.subarray((first + i) * wide, (first + i + 1) * wide);
    return vectors.slice(token * wide, (token + 1) * wide).map((each, f) => each + place[f]);
  });
}

function total(numbers) {
  return numbers.reduce((sum, each) => sum + each, 0);
}

function largest(numbers) {
  return numbers.indexOf(Math.max(...numbers));
}
