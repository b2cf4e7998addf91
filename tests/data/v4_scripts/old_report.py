# Prints the accuracy under every mask. Written for Python 2.
import cPickle

masks = cPickle.load(open("masks.pkl"))
for name, head_mask in masks.iteritems():
    print "%s: %.3f" % (name, evaluate(model, head_mask=head_mask))
