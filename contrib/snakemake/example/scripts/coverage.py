"""How many reads cover each base of the genome, in a few numbers."""
import json

with open(snakemake.input[0]) as lines:
    depths = [int(line.split("\t")[2]) for line in lines]
with open(snakemake.output[0], "w") as out:
    json.dump({"bases": len(depths), "covered": sum(d > 0 for d in depths), "mean_depth": round(sum(depths) / len(depths), 2)}, out)
